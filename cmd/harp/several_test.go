package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// several are two jobs, the second of which failed.
func several(t *testing.T) *fake {
	t.Helper()
	f := ended(t, nil)
	second := f.jobs[0]
	second.ID, second.State, second.Err = secondID, harp.StateFailed, &harp.RemoteError{Type: "oops", Message: "no"}
	f.jobs = append(f.jobs, second)
	f.results[secondID] = harp.Result{State: harp.StateFailed, Err: second.Err}
	return f
}

const noID = "019c13e8-0000-7000-8000-00000000000f"

// typed has words on stdin.
func typed(text string) func(*cli) {
	return func(c *cli) { c.stdin = strings.NewReader(text) }
}

func TestSeveralJobsAreReadOneAfterTheOther(t *testing.T) {
	f := several(t)
	got := runFake(t, t.Context(), f, nil, "job", "show", firstID, secondID)
	if got.code != 0 || strings.Count(got.stdout, "\nhost ") != 2 || !strings.Contains(got.stdout, "\n\nid ") {
		t.Errorf("show: got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "job", "get", secondID, firstID)
	if got.code != exitFailed || got.stdout != "{\"counted\":3}\n" || !strings.Contains(got.stderr, "oops") || !strings.Contains(got.stderr, secondID) {
		t.Errorf("get: got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "job", "wait", firstID, secondID)
	if got.code != exitFailed || !strings.Contains(got.stderr, "job "+firstID+" succeeded\n") {
		t.Errorf("wait: got %+v", got)
	}
	got = runFake(t, t.Context(), f, typed(firstID+"\n"+secondID+" \n"+firstID+"\n"), "job", "cancel", "-")
	if got.code != 0 || len(f.cancelled) != 2 || strings.Count(got.stderr, "already ended") != 2 {
		t.Errorf("cancel: got %+v, cancelled %v", got, f.cancelled)
	}
}

func TestOneOfSeveralJobsIsNotThere(t *testing.T) {
	f := several(t)
	got := runFake(t, t.Context(), f, nil, "job", "show", "-o", "json", firstID, noID, secondID)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != exitNotFound || len(lines) != 3 || !strings.Contains(lines[1], `"error":{"code":"not_found"`) {
		t.Errorf("show: got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "job", "wait", secondID, noID, firstID)
	if got.code != exitNotFound || !strings.Contains(got.stderr, "succeeded") {
		t.Errorf("not found is worse than failed: got %+v", got)
	}
	got = runFake(t, t.Context(), f, nil, "job", "cancel", firstID, "zzz")
	if got.code != exitUsage || len(f.cancelled) > 0 || !strings.Contains(got.stderr, "zzz is not a job ID") {
		t.Errorf("of what is no id: got %+v, cancelled %v", got, f.cancelled)
	}
	if got = runFake(t, t.Context(), f, typed(" \n"), "job", "wait", "-"); got.code != exitUsage {
		t.Errorf("of none: got %+v", got)
	}
	if got = runFake(t, t.Context(), f, typed(firstID+" "+secondID), "job", "follow", "-"); got.code != exitUsage {
		t.Errorf("follow takes one: got %+v", got)
	}
}

func TestLastCharactersNameAJob(t *testing.T) {
	f := several(t)
	if got := runFake(t, t.Context(), f, nil, "job", "get", firstID[len(firstID)-8:]); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "get", firstID[:8]); got.code != exitUsage || !strings.Contains(got.stderr, "2 jobs match") {
		t.Errorf("of what two begin with: got %+v", got)
	}
	if got := runFake(t, t.Context(), f, nil, "job", "get", "00001"); got.code != exitNotFound {
		t.Errorf("of fewer: got %+v", got)
	}
}

func TestAllRepeatedCallsAreMadeBeforeOneIsWaitedFor(t *testing.T) {
	f := several(t)
	f.feed.requests = map[string]harp.Request{}
	for _, id := range []string{firstID, secondID} {
		f.feed.requests[id] = harp.Request{ID: id, Host: "demo1", Procedure: "count", Args: value(t, map[string]any{"to": 3})}
	}
	got := runFake(t, t.Context(), f, nil, "job", "retry", "-d", firstID, secondID)
	if got.code != 0 || len(f.submitted) != 2 || got.stdout != f.submitted[0].ID+"\n"+f.submitted[1].ID+"\n" {
		t.Errorf("got %+v, submitted %+v", got, f.submitted)
	}
	got = runFake(t, t.Context(), f, nil, "job", "retry", firstID, noID, secondID)
	if got.code != exitNotFound || len(f.submitted) != 4 || strings.Count(got.stderr, " repeats ") != 2 || strings.Count(got.stdout, "counted") != 2 {
		t.Errorf("got %+v, submitted %+v", got, f.submitted)
	}
	if got = runFake(t, t.Context(), f, nil, "job", "retry", firstID, secondID, "--id", noID); got.code != exitUsage || len(f.submitted) != 4 {
		t.Errorf("with one id for two: got %+v", got)
	}
}

func TestInterruptedWaitForSeveralJobs(t *testing.T) {
	f := several(t)
	f.wait = true
	ctx, cancel := context.WithCancel(t.Context())
	f.waiting = cancel
	got := runFake(t, ctx, f, nil, "job", "wait", firstID, secondID)
	want := "detached; 2 jobs were not waited for and go on. Resume with: harp job wait " + firstID + " " + secondID + "\n"
	if got.code != exitDetached || got.stderr != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestWaitingForSeveralJobsIsLimitedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := several(t)
		f.wait = true
		f.jobs[0].State, f.jobs[1].State = harp.StateRunning, harp.StateRunning
		begun := time.Now()
		got := runFake(t, t.Context(), f, nil, "job", "wait", "--timeout", "1m", firstID, secondID)
		if took := time.Since(begun); got.code != exitWaited || took != time.Minute || strings.Count(got.stderr, "has not ended") != 2 {
			t.Errorf("after %v got %+v", took, got)
		}
	})
}

func TestNewIDs(t *testing.T) {
	got := runFake(t, t.Context(), ended(t, nil), nil, "id", "-n", "2")
	ids := strings.Fields(got.stdout)
	if got.code != 0 || len(ids) != 2 || ids[0] == ids[1] || harp.CheckID(ids[0]) != nil {
		t.Errorf("got %+v", got)
	}
	f := ended(t, nil)
	got = runFake(t, t.Context(), f, nil, "call", "-d", "--id", "new", "demo1", "hello", "name=Ada")
	id := f.submitted[0].ID
	if got.stdout != id+"\n" || got.stderr != "id "+id+"\n" {
		t.Errorf("got %+v of %s", got, id)
	}
}
