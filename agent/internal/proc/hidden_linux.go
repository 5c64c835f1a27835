package proc

import (
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// /proc may hide the processes of other users (hidepid, ProtectProc=): a program that becomes
// another user's is started by this process and not seen by it. Children are known without
// /proc: the leader until it is reaped, and, for a process that adopts orphans, all else as
// soon as its parent has ended. So is what is in the command's cgroup.

// hidden returns those of the command that /proc does not show, as far as they are children
// of this process. Orphans are looked for only when nothing else is found, as that is slow.
func (s search) hidden(all, found []member) []int {
	if s.runs && !hasMember(all, s.leader.PID) {
		return []int{s.leader.PID}
	}
	if len(found) > 0 || !s.adopted || len(s.others) > 0 || !hasChild(unix.P_ALL, 0) {
		return nil
	}
	// Numbers are given in their order: those behind the leader's are the likely ones.
	last, most := lastPID(), maxPID()
	var pids []int
	if s.leader.PID <= last {
		pids = children(s.leader.PID, last)
	} else if last > 0 {
		pids = append(children(s.leader.PID, most), children(2, last)...)
	}
	if len(pids) == 0 {
		pids = children(2, most)
	}
	return pids
}

// unseen returns those inside the cgroup that are not among all, and have not ended meanwhile. An error
// says that they are not known.
func (c cgroup) unseen(inside map[int]bool, all []member) (pids []int, err error) {
	if len(inside) == 0 {
		return nil, nil
	}
	inside = maps.Clone(inside)
	for _, m := range all {
		delete(inside, m.pid)
	}
	if len(inside) == 0 {
		return nil, nil
	}
	now, err := c.members()
	for pid := range inside {
		if now[pid] {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// children returns the children of this process with a number between two that have not
// ended.
func children(first, last int) (pids []int) {
	for pid := first; pid <= last; pid++ {
		if hasChild(unix.P_PID, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hasMember(all []member, pid int) bool {
	for _, m := range all {
		if m.pid == pid {
			return true
		}
	}
	return false
}

// hasChild reports whether this process has a child that has not ended: one of a number, or
// any. To wait for one to be stopped fails when there is none, and does nothing else.
func hasChild(idType, id int) bool {
	for {
		err := unix.Waitid(idType, id, nil, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// maxPID is the highest number that a process may have.
func maxPID() int {
	const most = 1 << 22 // of the kernel
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return most
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return most
	}
	return n
}

// lastPID is the number that was given to a process last; 0: not known.
func lastPID() int {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	text := strings.TrimSpace(string(b))
	n, err := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:])
	if err != nil {
		return 0
	}
	return n
}
