package dispatcher_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// lineCounter is a log that counts its lines by their messages.
type lineCounter struct {
	slog.Handler
	mu    sync.Mutex
	lines map[string]int
}

func (c *lineCounter) Handle(ctx context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[r.Message]++
	return c.Handler.Handle(ctx, r)
}

// What cannot be stored for as long as the disk is full is tried each second, and not logged each time: the log may be on that disk.
func TestAFullDiskIsNotLoggedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, network := memory.NewDisk(), newNetwork(t, inMemory)
		sys := newSystemOn(t, embedded, network, memory.OpenDisk(disk, nil), dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		host := sys.caller.Host("web01", harp.Queue(harp.Args{}))
		running := must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
		(<-asked).sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		waiting := must[*harp.Job](t)(host.Call(t.Context(), "work", nil, harp.StartBefore(time.Now().Add(time.Minute))))
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		agent.tr.Close(nil)
		disk.SetSpace(store.SpaceFull)
		log := &lineCounter{Handler: slog.NewTextHandler(t.Output(), nil), lines: map[string]int{}}
		again := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Logger: slog.New(log)}))
		time.Sleep(10 * time.Minute)
		log.mu.Lock()
		for line, n := range log.lines {
			if n > 11 {
				t.Errorf("%d lines %q in 10 minutes", n, line)
			}
		}
		log.mu.Unlock()
		disk.SetSpace(store.SpacePlenty)
		time.Sleep(2 * time.Second)
		for job, want := range map[*harp.Job]harp.State{running: harp.StateUnknown, waiting: harp.StateExpired} {
			if s := must[harp.JobStatus](t)(again.Caller().Job(job.ID()).Status(t.Context())); s.State != want {
				t.Errorf("it is %s, want %s", s.State, want)
			}
		}
		if err := again.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
