package proc

import (
	"context"
	"fmt"
	"os"
	"time"
)

// EndOrphans ends what is left of a command whose supervisor died: TERM, and after the
// grace KILL. It finds the process id with its group and session, if that is not another
// by now, what is in the cgroup, what carries the mark of the attempt in its environment,
// and what descends from any. Then it removes the cgroup. It returns how many processes it
// ended; none if the machine was booted meanwhile. Empty or zero values are not known.
//
// The error is that of ctx if that ended first, a *[LeftError] if something would not go,
// or that of the system if what is there cannot be seen.
func EndOrphans(ctx context.Context, id Identity, cgroupDir, job string, attempt int64, grace time.Duration) (ended int, err error) {
	if bootedSince(id.Boot) {
		return 0, nil
	}
	t := orphansOf(id, cgroupDir, job, attempt)
	done := newTally()
	e := newEnding(t, id.PID, time.Now().Add(grace))
	e.given = ctx.Done()
	if err = e.run(done); ctx.Err() != nil {
		return done.ended(), ctx.Err()
	}
	_ = t.cgroup.remove() // it may not be empty
	return done.ended(), err
}

// orphansOf is the tree of a command whose supervisor died.
func orphansOf(id Identity, cgroupDir, job string, attempt int64) linuxTree {
	mark := []string{jobVariable + "=" + job, fmt.Sprintf("%s=%d", attemptVariable, attempt)}
	return linuxTree{cgroup: cgroup(cgroupDir), search: func() search {
		_, others := commands.othersThan(0)
		s := search{self: os.Getpid(), leader: id, others: others}
		if job != "" {
			s.cookied = func(pid int) (bool, error) { return proc.marked(pid, mark) }
		}
		return s
	}}
}
