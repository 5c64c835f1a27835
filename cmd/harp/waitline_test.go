package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
)

// While a job is silent a line on a terminal says what it waits for and since when. Whatever is
// printed erases it, it does not cut a line in two, and a dispatcher that is gone is told.
func TestWaitLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both bytes.Buffer
		c := newCLI(nil, &both, &both, nil)
		begun := time.Now()
		paint := func(s harp.JobStatus, err error) string {
			both.Reset()
			c.line.paint(s, err, time.Now(), 50)
			return both.String()
		}
		queued := harp.JobStatus{State: harp.StateQueued, Reason: "queue", QueuePos: 2, Since: begun}
		c.notice("job x")
		if got := paint(queued, nil); got != "" {
			t.Errorf("at once: %q", got)
		}
		if got := c.line.goesOn(); got != "is queued (queue) and goes on" {
			t.Error(got)
		}
		time.Sleep(2 * time.Second)
		if got := paint(queued, nil); got != "\r\x1b[Kqueued (queue), place 2, for 2s" {
			t.Errorf("of silence: %q", got)
		}
		both.Reset()
		c.say("a record")
		if got := both.String(); got != "\r\x1b[Ka record\n" {
			t.Errorf("printed over it: %q", got)
		}
		if _, err := c.stdout.Write([]byte("half a line")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := paint(queued, nil); got != "" {
			t.Errorf("within a line: %q", got)
		}
		c.say("")
		time.Sleep(2 * time.Second)
		if got := paint(harp.JobStatus{}, errors.New("gone")); got != "\r\x1b[Kno answer from the dispatcher; trying again" {
			t.Errorf("without a dispatcher: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := paint(harp.JobStatus{}, errors.New("gone")); got != "\r\x1b[Kno answer from the dispatcher for 2s; trying again" {
			t.Errorf("still without one: %q", got)
		}
		if got := c.line.goesOn(); got != "may go on: the dispatcher does not answer" {
			t.Error(got)
		}
	})
}

// The line is painted a second after the wait begins, and is gone when it ends.
func TestWaitingIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both bytes.Buffer
		c := newCLI(nil, &both, &both, nil)
		c.errTerminal = true
		f := ended(t, nil)
		stop := c.showWaiting(t.Context(), harp.NewCaller(f).Job(firstID))
		time.Sleep(3500 * time.Millisecond)
		stop()
		if got := both.String(); strings.Count(got, "\r\x1b[Ksucceeded, for ") != 3 || !strings.HasSuffix(got, "\r\x1b[K") {
			t.Errorf("got %q", got)
		}
		both.Reset()
		c.quiet = true
		c.showWaiting(t.Context(), harp.NewCaller(f).Job(firstID))()
		if both.Len() > 0 {
			t.Errorf("quiet: %q", both.String())
		}
	})
}
