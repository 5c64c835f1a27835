package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// linuxTree finds the processes of a command in /proc and in its cgroup.
type linuxTree struct {
	search func() search // as it is now
	cgroup cgroup
}

func (t linuxTree) find(seen func(key) bool) ([]member, error) {
	s := t.search()
	s.seen = seen
	// The cgroup is read first: who is in it and younger than the look at /proc is found
	// by the next.
	inside, err := t.cgroup.members()
	if err != nil {
		return nil, err
	}
	s.inside = inside
	all, err := proc.all()
	if err != nil {
		return nil, err
	}
	found, err := s.of(all)
	if err != nil {
		return nil, err
	}
	unseen, err := t.cgroup.unseen(inside, all)
	if err != nil {
		return nil, err
	}
	for _, pid := range unseen {
		found = append(found, member{pid: pid, group: s.leader.PID, hidden: true, cgroup: t.cgroup})
	}
	for _, pid := range s.hidden(all, found) {
		if !hasMember(found, pid) {
			found = append(found, member{pid: pid, group: s.leader.PID, hidden: true})
		}
	}
	return found, nil
}

// term also wakes who was stopped, and could not end otherwise.
func (t linuxTree) term(m member) bool { return m.signal(unix.SIGTERM, unix.SIGCONT) }

func (t linuxTree) kill(m member) bool { return m.signal(unix.SIGKILL) }

func (t linuxTree) killAll() {
	// The leader's group goes at once, also what is being born in it.
	if s := t.search(); s.held && s.leader.PID > 1 {
		_ = unix.Kill(-s.leader.PID, unix.SIGKILL) // it may be empty
	}
	t.cgroup.kill()
}

// signal sends the signals to the process, and to no other one that has its number
// meanwhile: that of a child is nobody else's until it is reaped. It reports whether it did:
// the process may be gone, or not ours to signal.
func (m member) signal(signals ...unix.Signal) bool {
	fd, unopened := unix.PidfdOpen(m.pid, 0)
	if unopened == nil {
		defer func() { _ = unix.Close(fd) }() // a descriptor that nothing was written to
	}
	if errors.Is(unopened, unix.ESRCH) || !m.isThere() {
		return false
	}
	for _, sig := range signals {
		err := unopened
		if err == nil {
			err = unix.PidfdSendSignal(fd, sig, nil, 0)
		}
		// A kernel before 5.3 has no such descriptors, though 5.1 can send by one, and a sandbox may refuse
		// either; a number is not given to another within moments.
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			err = unix.Kill(m.pid, sig)
		}
		if err != nil {
			return false
		}
	}
	return true
}

// isThere reports whether the process has not ended.
func (m member) isThere() bool {
	switch {
	case m.cgroup != "":
		inside, err := m.cgroup.members()
		return err == nil && inside[m.pid]
	case m.hidden:
		return hasChild(unix.P_PID, m.pid)
	}
	now, err := proc.member(m.pid)
	return err == nil && now.start == m.start && !now.dead
}

// tree returns the tree of a process, as it is at each look.
func (p *Process) tree() tree {
	return linuxTree{cgroup: p.cgroup, search: func() search {
		adopted, others := commands.othersThan(p.id.PID)
		s := search{
			self: os.Getpid(), leader: p.id, held: p.held(), runs: !p.hasExited(),
			adopted: adopted, others: others,
		}
		if len(p.cookie) > 0 && (!adopted || len(others) > 0) {
			s.cookied = func(pid int) (bool, error) { return proc.marked(pid, p.cookie) }
		}
		return s
	}}
}
