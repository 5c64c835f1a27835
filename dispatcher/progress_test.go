package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/store"
)

// While the dispatcher itself is slow to store what came of an attempt, and nothing of it came since, its end may
// be behind that: it is not given up then.
func TestAnAttemptIsNotOverdueWhileItsDispatcherIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{}
		p.noteBegun()
		p.noteBusy(true)
		job := &store.Job{MaxExecTime: time.Minute}
		time.Sleep(24 * time.Hour)
		if p.markOverdue(job, time.Now()) {
			t.Error("it is given up while a frame of it is being stored")
		}
		p.noteBusy(false)
		time.Sleep(overdueEvery + time.Second)
		if !p.markOverdue(job, time.Now()) {
			t.Error("it is not given up when nothing of it came")
		}
		if p.markOverdue(job, time.Now()) {
			t.Error("it is given up twice")
		}
	})
}
