package proc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/needs"
)

// eachWay runs a test once for each way in which processes are found.
func eachWay(t *testing.T, test func(t *testing.T, how string)) {
	t.Helper()
	for _, how := range []string{"adopted", "marked", "cgroup"} {
		t.Run(how, func(t *testing.T) {
			if err := ProbeCgroups(); how == "cgroup" && err != nil {
				needs.Missing(t, err)
			}
			test(t, how)
		})
	}
}

func TestEndFindsGrandchildrenInOtherSessions(t *testing.T) {
	eachWay(t, func(t *testing.T, how string) {
		const n = 200
		mark := marker()
		script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do
			sh -c 'setsid sh -c "echo up; exec sleep %s" & exec sleep %[2]s' &
			i=$((i+1)); done; wait`, n, mark)
		got := supervised(t, order{Spec: shell(script), How: how, Lines: n, Grace: time.Minute})
		if left := having(t, mark); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
		if got.Status.Strays < n || got.Status.Killed > 0 || got.Status.Signal != "SIGTERM" {
			t.Errorf("got %+v, want at least %d strays, ended by TERM", got.Status, n)
		}
		if got.Children > 0 {
			t.Errorf("%d children were not reaped", got.Children)
		}
	})
}

func TestEndFindsADaemon(t *testing.T) {
	eachWay(t, func(t *testing.T, how string) {
		mark := marker()
		script := fmt.Sprintf(`(setsid sh -c "echo up; exec sleep %s" &) ; exit 7`, mark)
		got := supervised(t, order{Spec: shell(script), How: how, Lines: 1, Exited: true, Grace: time.Minute})
		if left := having(t, mark); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
		if got.Status.Strays != 1 || got.Status.Exit != 7 || got.Status.Signal != "" {
			t.Errorf("got %+v, want one stray and exit code 7", got.Status)
		}
		if got.Children > 0 {
			t.Errorf("%d children were not reaped", got.Children)
		}
	})
}

func TestEndOutrunsWhatKeepsForking(t *testing.T) {
	eachWay(t, func(t *testing.T, how string) {
		mark := marker()
		script := fmt.Sprintf(`trap "" TERM
			sh -c 'while :; do setsid sleep %s & read x </proc/uptime; done' &
			setsid sh -c 'while :; do setsid sleep %[1]s & done' &
			echo up; wait`, mark)
		got := supervised(t, order{Spec: shell(script), How: how, Lines: 1, Grace: 20 * time.Millisecond})
		if left := having(t, mark); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
		if got.Status.Killed < 3 || got.Status.Signal != "SIGKILL" {
			t.Errorf("got %+v, want all of it killed", got.Status)
		}
	})
}

func TestEndKillsAfterTheGrace(t *testing.T) {
	p := startPiped(t, shell(`trap "" TERM; echo up; exec sleep 1000`), Options{})
	p.line(t)
	p.End(10 * time.Millisecond)
	if s := p.Wait(); s.Killed != 1 || s.Signal != "SIGKILL" || s.Exit != -1 || s.Strays != 0 {
		t.Errorf("got %+v, want one killed", s)
	}
	if alive(p.Identity()) {
		t.Error("it is alive")
	}
}

func TestEndLeavesTimeToEnd(t *testing.T) {
	p := startPiped(t, shell(`trap 'echo bye; exit 3' TERM; echo up; sleep 1000 & wait`), Options{})
	p.line(t)
	p.End(time.Hour)
	if s := p.Wait(); s.Killed != 0 || s.Exit != 3 || s.RanFor <= 0 {
		t.Errorf("got %+v, want exit code 3", s)
	}
	if got := p.line(t); got != "bye" {
		t.Errorf("got %q", got)
	}
}

func TestTheShorterGraceHolds(t *testing.T) {
	p := startPiped(t, shell(`trap 'echo asked' TERM; echo up; while :; do sleep 1000 & wait; done`), Options{})
	p.line(t)
	first := make(chan struct{})
	go func() {
		defer close(first)
		p.End(time.Hour)
	}()
	if got := p.line(t); got != "asked" {
		t.Errorf("got %q", got)
	}
	p.End(0)
	<-first
	if s := p.Wait(); s.Signal != "SIGKILL" {
		t.Errorf("got %+v, want it killed", s)
	}
}

func TestEndWakesTheStopped(t *testing.T) {
	p := startPiped(t, shell(`trap 'exit 4' TERM; kill -STOP $$; exit 5`), Options{})
	until(t, func() bool {
		return strings.Contains(read(t, fmt.Sprintf("/proc/%d/stat", p.Identity().PID)), ") T ")
	})
	p.End(time.Hour)
	if s := p.Wait(); s.Exit != 4 {
		t.Errorf("got %+v, want it to end by its trap", s)
	}
}

func TestLeave(t *testing.T) {
	mark := marker()
	p := startPiped(t, shell(fmt.Sprintf(`sleep %s & echo up; setsid sleep %[1]s &`, mark)), Options{})
	p.line(t)
	until(t, func() bool { return len(having(t, mark)) == 2 })
	left := p.Leave()
	p.End(0)
	if s := p.Wait(); s.Exit != 0 || s.Killed != 0 {
		t.Errorf("got %+v", s)
	}
	if got := having(t, mark); len(got) != 2 || len(left) == 0 || !alive(left[0]) {
		t.Errorf("%d are left, and %d were said to be", len(got), len(left))
	}
	for _, pid := range having(t, mark) {
		m, err := proc.member(pid)
		if err != nil || !m.signal(9) {
			t.Errorf("cannot end %d: %v", pid, err)
		}
	}
}

func TestEndOrphans(t *testing.T) {
	mark := marker()
	const job = "01JORPHAN"
	script := strings.ReplaceAll(`setsid sh -c 'env -i sleep MARK & echo up; exec sleep MARK' &
		env -i setsid sh -c 'sleep MARK & echo up; exec env HARP_JOB=01JORPHAN HARP_ATTEMPT=3 sleep MARK' &
		sleep MARK`, "MARK", mark)
	s := startOrder(t, order{
		Spec: shell(script, "HARP_JOB="+job, "HARP_ATTEMPT=3"), How: "adopted", Lines: 2, Stay: true,
	})
	got := s.outcome(t)
	id, err := proc.member(s.Identity().PID)
	if err != nil || !id.signal(9) {
		t.Fatal(err)
	}
	<-s.Exited()
	const before = 5
	until(t, func() bool { return len(having(t, mark)) == before })

	stranger := got.ID
	stranger.Start++
	otherBoot := got.ID
	otherBoot.Boot = "another"
	for name, n := range map[string]int{
		"another process of the number": ended(t, stranger, "", 0, 0),
		"another boot":                  ended(t, otherBoot, job, 3, 0),
		"another attempt":               ended(t, stranger, job, 2, 0),
	} {
		if n != 0 || len(having(t, mark)) != before {
			t.Errorf("%s: %d ended", name, n)
		}
	}
	if n := ended(t, got.ID, job, 3, time.Minute); n < before || len(having(t, mark)) > 0 {
		t.Errorf("%d of %d ended, %d are left", n, before, len(having(t, mark)))
	}
	if n := ended(t, got.ID, job, 3, time.Minute); n != 0 {
		t.Errorf("%d ended again", n)
	}
}

// TestEndOrphansIsGivenUp checks that who gives up ending orphans is told so, and what is left of them
// stays in its cgroup, which is removed when they have ended.
func TestEndOrphansIsGivenUp(t *testing.T) {
	if err := ProbeCgroups(); err != nil {
		needs.Missing(t, err)
	}
	s := startOrder(t, order{Spec: shell(`trap '' TERM; echo up; while :; do sleep 1; done`), How: "cgroup", Lines: 1, Stay: true})
	got := s.outcome(t)
	id, err := proc.member(s.Identity().PID)
	if err != nil || !id.signal(9) {
		t.Fatal(err)
	}
	<-s.Exited()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := EndOrphans(ctx, got.ID, got.Cgroup, "", 0, time.Hour); !errors.Is(err, context.Canceled) || !alive(got.ID) || !exists(got.Cgroup) {
		t.Errorf("it is alive: %v, the error is %v", alive(got.ID), err)
	}
	if n, err := EndOrphans(t.Context(), got.ID, got.Cgroup, "", 0, 0); n == 0 || err != nil || alive(got.ID) || exists(got.Cgroup) {
		t.Errorf("%d ended, the error is %v", n, err)
	}
}

// What has no mark is known by its parent only, which ends first.
func TestEndOrphansOfOrphans(t *testing.T) {
	mark := marker()
	const job = "01JORPHAN2"
	script := strings.ReplaceAll(`setsid sh -c 'env -i "PATH=$PATH" sh -c "trap \"\" TERM; echo up; sleep MARK; sleep MARK" &
		exec sleep MARK' & sleep MARK`, "MARK", mark)
	s := startOrder(t, order{
		Spec: shell(script, "HARP_JOB="+job, "HARP_ATTEMPT=1"), How: "adopted", Lines: 1, Stay: true,
	})
	got := s.outcome(t)
	id, err := proc.member(s.Identity().PID)
	if err != nil || !id.signal(9) {
		t.Fatal(err)
	}
	<-s.Exited()
	until(t, func() bool { return len(having(t, mark)) == 3 })
	if n := ended(t, got.ID, job, 1, 50*time.Millisecond); n < 4 || len(having(t, mark)) > 0 {
		t.Errorf("%d ended, %d are left", n, len(having(t, mark)))
		for _, pid := range having(t, mark) {
			if m, err := proc.member(pid); err == nil {
				m.signal(9)
			}
		}
	}
}

func TestTheNumberIsKeptUntilWait(t *testing.T) {
	p := startPiped(t, shell(`exec sleep 1000`), Options{})
	id := p.Identity()
	if !alive(id) {
		t.Error("it is not there")
	}
	p.End(time.Minute)
	<-p.Exited()
	if m, err := proc.member(id.PID); err != nil || !m.dead || m.start != id.Start {
		t.Errorf("its number was given up before Wait: %+v, %v", m, err)
	}
}

// alive reports whether a process runs.
func alive(id Identity) bool {
	m, err := proc.member(id.PID)
	return err == nil && m.start == id.Start && !m.dead
}

// ended is how many orphans EndOrphans ended.
func ended(t *testing.T, id Identity, job string, attempt int64, grace time.Duration) int {
	t.Helper()
	n, err := EndOrphans(t.Context(), id, "", job, attempt, grace)
	if err != nil {
		t.Error(err)
	}
	return n
}
