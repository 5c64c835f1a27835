//go:build unix

package proc

import "cmp"

// member is a process, as one look at it showed it.
type member struct {
	pid, parent, group, session int
	start                       uint64
	name                        string // of the program, as far as the kernel keeps it
	dead                        bool   // it has ended and was not reaped yet
	hidden                      bool   // /proc does not show it: it is a child of this process, or in cgroup, and nothing else of it is known
	cgroup                      cgroup // that shows one that is hidden
}

// key tells a process from the others, within one boot.
type key struct {
	pid   int
	start uint64
}

func (m member) key() key { return key{m.pid, m.start} }

// byAge orders processes so that parents come before their children.
func byAge(a, b member) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
}
