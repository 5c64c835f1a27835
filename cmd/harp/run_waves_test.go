package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// Where somebody can be asked, each wave is approved.
func TestWavesAreApproved(t *testing.T) {
	for answer, want := range map[string]int{"y\n": exitOK, "n\n": exitWaited} {
		synctest.Test(t, func(t *testing.T) {
			f := running(t, 7)
			all := f.batches
			f.batches.log, f.batches.more = all.log[:1:1], make(chan harp.HostRecord)
			f.batches.status = func(int) harp.BatchStatus {
				s := all.status(1)
				if len(f.batches.changes) > 0 {
					return s
				}
				s.State, s.Reason, s.Wave, s.Waves = harp.BatchPaused, harp.BatchReasonWave, 2, 2
				s.Counts = map[harp.State]int{harp.StateSucceeded: 1, harp.StateQueued: 6}
				return s
			}
			var rest sync.WaitGroup
			defer rest.Wait()
			f.batches.changed = func() {
				rest.Go(func() {
					for _, e := range all.log[1:] {
						f.batches.more <- e
					}
					close(f.batches.more)
				})
			}
			got := runBatch(t, f, typing(answer), "-y --rolling 1 --approve")
			if got.code != want || !strings.Contains(got.stderr, "Wave 1 of 2 is over: ok 1 waiting 6. Go on? [y/N]") {
				t.Errorf("%q: got %+v", answer, got)
			}
		})
	}
}

// pausedBeforeWave has a batch of seven hosts that waits for somebody to approve the second of its three waves. change makes of that what it is when
// it is looked at.
func pausedBeforeWave(t *testing.T, change func(*harp.BatchStatus)) *fake {
	t.Helper()
	f := running(t, 7)
	all := f.batches
	f.batches.log, f.batches.more = all.log[:2:2], make(chan harp.HostRecord)
	f.batches.changed = func() { close(f.batches.more) }
	f.batches.status = func(int) harp.BatchStatus {
		s := all.status(1)
		if len(f.batches.changes) > 0 {
			return s
		}
		s.State, s.Reason, s.Wave, s.Waves, s.Since = harp.BatchPaused, harp.BatchReasonWave, 2, 3, noon
		s.Counts = map[harp.State]int{harp.StateSucceeded: 2, harp.StateQueued: 5}
		change(&s)
		return s
	}
	return f
}

// approve answers what the command asks about waves; answered is called as the first answer is read. No answer may resume the batch.
func approve(t *testing.T, f *fake, answered func(), answers string) said {
	t.Helper()
	got := runBatch(t, f, func(c *cli) {
		c.inTerminal, c.errTerminal = true, true
		c.stdin = io.MultiReader(readerFunc(answered), strings.NewReader(answers))
	}, "-y --rolling 1,2 --approve")
	if len(f.batches.changes) > 0 {
		t.Errorf("%d changes", len(f.batches.changes))
	}
	return got
}

// An answer is about the wave that was asked about: not about the next one, which is over by then as somebody else approved it.
func TestAnAnswerApprovesOneWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := false
		f := pausedBeforeWave(t, func(s *harp.BatchStatus) {
			if answered {
				s.Wave, s.Since = 3, noon.Add(time.Minute)
			}
		})
		got := approve(t, f, func() { answered = true }, "y\nn\n")
		if got.code != exitWaited || strings.Count(got.stderr, "Go on?") != 2 || !strings.Contains(got.stderr, "Wave 2 of 3 is over") {
			t.Errorf("got %+v", got)
		}
	})
}

// A wave is not asked about while somebody has paused the batch, nor approved by an answer that comes after that.
func TestAnAnswerEndsNoPauseOfSomebodyElse(t *testing.T) {
	for name, first := range map[string]bool{"before the question": true, "before the answer": false} {
		synctest.Test(t, func(t *testing.T) {
			isPaused := first
			f := pausedBeforeWave(t, func(s *harp.BatchStatus) {
				s.Pause = &harp.BatchPause{Time: noon}
				if isPaused {
					s.Pause.By = harp.Principal{Kind: "user", Name: "ada"}
				}
			})
			got := approve(t, f, func() { isPaused = true }, "y\n")
			if got.code != exitWaited || strings.Contains(got.stderr, "Go on?") == first || !strings.Contains(got.stderr, "\nResume with: harp batch resume "+batchID+"; end it with") {
				t.Errorf("%s: got %+v", name, got)
			}
		})
	}
}

// What is said of a batch that is paused while it waits for a wave to be approved tells that resuming it approves that.
func TestResumingAPausedBatchApprovesItsWave(t *testing.T) {
	f := pausedBeforeWave(t, func(*harp.BatchStatus) {})
	waiting := f.batches.status(1)
	f.batches.status = func(int) harp.BatchStatus { return waiting }
	f.batches.changed = nil
	got := runFake(t, t.Context(), f, nil, "batch", "pause", batchID)
	if got.code != exitOK || !strings.Contains(got.stderr, "is paused; resume it, which approves wave 2, with: harp batch resume "+batchID) {
		t.Errorf("got %+v", got)
	}
}

// The request says which wave is approved, as another may be over by the time that the dispatcher has it.
func TestAnAnswerNamesItsWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pausedBeforeWave(t, func(*harp.BatchStatus) {})
		got := runBatch(t, f, typing("y\n"), "-y --rolling 1,2 --approve")
		if want := []harp.BatchChange{{Kind: harp.ResumeOfBatch, Wave: 2}}; got.code != exitOK || !slices.Equal(f.batches.changes, want) {
			t.Errorf("got %+v and the changes %+v", got, f.batches.changes)
		}
	})
	f := running(t, 7)
	got := runFake(t, t.Context(), f, nil, "batch", "resume", batchID, "--wave", "3")
	if want := []harp.BatchChange{{Kind: harp.ResumeOfBatch, Wave: 3}}; got.code != exitOK || !slices.Equal(f.batches.changes, want) {
		t.Errorf("got %+v and the changes %+v", got, f.batches.changes)
	}
}

// interruptAtQuestion interrupts the command at its first question about a wave, which nobody answers.
func interruptAtQuestion(t *testing.T, f *fake) said {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	answer, nobody := io.Pipe()
	defer nobody.Close()
	return runFake(t, ctx, f, func(c *cli) {
		c.inTerminal, c.errTerminal = true, true
		c.stdin = io.MultiReader(readerFunc(interrupt), answer)
	}, strings.Fields("run demo* count to=3 -y --rolling 1,2 --approve --cancel-on-interrupt --id "+batchID)...)
}

// An interrupt at the question of a wave cancels the batch where that is asked for, and nobody has to answer any more.
func TestAnInterruptAtAQuestionCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pausedBeforeWave(t, func(*harp.BatchStatus) {})
		paused := f.batches.status
		f.batches.status = func(n int) harp.BatchStatus {
			s := paused(n)
			if len(f.batches.changes) > 0 {
				s.State, s.Reason = harp.BatchCancelled, harp.BatchReasonRequested
			}
			return s
		}
		got := interruptAtQuestion(t, f)
		if want := []harp.BatchChange{{Kind: harp.CancelOfBatch}}; got.code != exitCancelled || !slices.Equal(f.batches.changes, want) {
			t.Errorf("got %+v and the changes %+v", got, f.batches.changes)
		}
	})
}

// Where the batch cannot be cancelled then, it stays paused, and its end is not waited for.
func TestAnInterruptAtAQuestionThatCancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, 7)
		all := f.batches
		f.batches.log, f.batches.more = all.log[:2:2], make(chan harp.HostRecord)
		f.batches.refused = harp.ErrUnavailable
		f.batches.status = func(int) harp.BatchStatus {
			s := all.status(1)
			s.State, s.Reason, s.Wave, s.Waves, s.Since = harp.BatchPaused, harp.BatchReasonWave, 2, 3, noon
			s.Counts = map[harp.State]int{harp.StateSucceeded: 2, harp.StateQueued: 5}
			return s
		}
		got := interruptAtQuestion(t, f)
		if got.code != exitWaited || !strings.Contains(got.stderr, "cancel: ") || !strings.Contains(got.stderr, "harp batch resume "+batchID+" --wave 2") {
			t.Errorf("got %+v", got)
		}
	})
}

// Where nobody says whether the batch still is where it was asked about, the answer approves nothing.
func TestAnAnswerApprovesNothingUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := false
		f := pausedBeforeWave(t, func(*harp.BatchStatus) {})
		f.batches.silent = func(bool) bool { return answered }
		if got := approve(t, f, func() { answered = true }, "y\n"); got.code != exitHarp {
			t.Errorf("got %+v", got)
		}
	})
}

// Who does not approve a wave that somebody else has approved meanwhile is not told that the batch is paused.
func TestANoToAWaveThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := false
		f := pausedBeforeWave(t, func(s *harp.BatchStatus) {
			if answered {
				s.State, s.Reason, s.Since = harp.BatchRunning, "", noon.Add(time.Minute)
			}
		})
		got := approve(t, f, func() { answered = true }, "n\n")
		if got.code != exitWaited || strings.Contains(got.stderr, "Resume with") || !strings.Contains(got.stderr, "batch running: 7 hosts") {
			t.Errorf("got %+v", got)
		}
	})
}

// readerFunc does something when it is read, and is at its end.
type readerFunc func()

func (f readerFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}
