package proc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// procfs is where proc(5) is mounted.
type procfs string

const proc procfs = "/proc"

var errStat = errors.New("not as proc(5) says")

// boot is the kernel's id of this boot, once it was read.
var boot struct {
	sync.Mutex
	id string
}

// BootID returns the kernel's id of this boot; empty if it cannot be had here, or now.
func BootID() string {
	id, _ := readBootID()
	return id
}

// readBootID is BootID, with the reason why it cannot be had.
func readBootID() (string, error) {
	boot.Lock()
	defer boot.Unlock()
	if boot.id == "" {
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return "", err
		}
		boot.id = strings.TrimSpace(string(id))
	}
	return boot.id, nil
}

// bootedSince reports whether the machine has booted since it had a boot id: not if that,
// or the id of this boot, is not known.
func bootedSince(id string) bool {
	now := BootID()
	return id != "" && now != "" && now != id
}

// all returns every process.
func (p procfs) all() ([]member, error) {
	dir, err := os.Open(string(p))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	found := make([]member, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		m, err := p.member(pid)
		switch {
		case err == nil:
			found = append(found, m)
		case IsShort(err):
			return nil, err
		}
	}
	return found, nil
}

// member looks at one process.
func (p procfs) member(pid int) (member, error) {
	b, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "stat"))
	if err != nil {
		return member{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads /proc/PID/stat. The name of the program is in parentheses and may hold
// any byte, also those.
func parseStat(pid int, b []byte) (member, error) {
	before, rest, ok := cutLast(b, ')')
	fields := strings.Fields(string(rest))
	const state, parent, group, session, threads, start = 0, 1, 2, 3, 17, 19
	if !ok || len(fields) <= start {
		return member{}, errStat
	}
	_, name, _ := strings.Cut(string(before), "(")
	m := member{pid: pid, name: name}
	var errs [5]error
	var n int
	m.parent, errs[0] = strconv.Atoi(fields[parent])
	m.group, errs[1] = strconv.Atoi(fields[group])
	m.session, errs[2] = strconv.Atoi(fields[session])
	n, errs[3] = strconv.Atoi(fields[threads])
	m.start, errs[4] = strconv.ParseUint(fields[start], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return member{}, err
	}
	switch fields[state] {
	case "X", "x":
		m.dead = true
	case "Z":
		m.dead = n <= 1 // else only its first thread has ended
	}
	return m, nil
}

func cutLast(b []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

// marked reports whether a process has all of the settings in its environment, as that
// was when it began. A process of somebody else cannot be looked into. The error says that
// this one could not be, for now.
func (p procfs) marked(pid int, settings []string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "environ"))
	if IsShort(err) {
		return false, err
	}
	if err != nil || len(settings) == 0 {
		return false, nil
	}
	b = append(append([]byte{0}, b...), 0)
	for _, s := range settings {
		if !bytes.Contains(b, []byte("\x00"+s+"\x00")) {
			return false, nil
		}
	}
	return true, nil
}

// identify returns the identity of a process that is not reaped. When it began is not known
// if /proc does not show it: a program that became another user's may be hidden there.
func identify(pid int) Identity {
	id, _ := identity(pid)
	return id
}

// identity is identify, with the reason why a part of it is not known.
func identity(pid int) (Identity, error) {
	m, unseen := proc.member(pid)
	boot, unread := readBootID()
	return Identity{PID: pid, Start: m.start, Boot: boot}, errors.Join(unseen, unread)
}
