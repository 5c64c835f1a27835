package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// A procedure that runs once at a time answers another call that it is busy, and the
// dispatcher hears when it no longer is.
func TestExclusive(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		leave := make(chan struct{})
		offer(a, "alone", func(context.Context) (int, error) { <-leave; return 1, nil }, agent.Exclusive())
		offer(a, "other", func(context.Context) (int, error) { return 2, nil })
		d, _, _ := connect(t, p, a)
		first := d.call("alone", nil).accepted()
		if reason := d.call("alone", nil).notNow(); reason != wire.NotNowBusy {
			t.Errorf("another call of it is told %q", reason)
		}
		if n := value[int](t, d.call("other", nil).accepted().end()); n != 2 {
			t.Errorf("another procedure returned %d", n)
		}
		leave <- struct{}{}
		var again *exchange
		for again == nil { // any place that becomes free is told
			var ready wire.Ready
			if err := d.hear(t.Context(), wire.TypeReady, &ready); err != nil {
				t.Fatal(err)
			}
			x := d.call("alone", nil)
			if f := x.receive(); f.Type == wire.TypeAccepted {
				again = x
			}
		}
		leave <- struct{}{}
		first.end()
		again.end()
	})
}

// As many calls of a procedure run as it declares; the next one waits.
func TestConcurrency(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		leave := make(chan struct{})
		offer(a, "pair", func(context.Context) (int, error) { <-leave; return 1, nil }, agent.Concurrency(2))
		d, _, _ := connect(t, p, a)
		first, second := d.call("pair", nil).accepted(), d.call("pair", nil).accepted()
		if reason := d.call("pair", nil).notNow(); reason != wire.NotNowBusy {
			t.Errorf("a third call of it is told %q", reason)
		}
		close(leave)
		first.end()
		second.end()
	})
}

// How many run at a time is declared once, and is a number.
func TestConcurrencyThatCannotBe(t *testing.T) {
	for name, opts := range map[string][]agent.ProcOption{
		"none": {agent.Concurrency(0)}, "twice": {agent.Concurrency(2), agent.Exclusive()}, "twice, exclusive first": {agent.Exclusive(), agent.Concurrency(2)},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, `agent: procedure "p": `) {
					t.Errorf("%s: %s", name, text)
				}
			}()
			offer(agent.New(agent.Config{Name: "web01"}), "p", func(context.Context) (int, error) { return 0, nil }, opts...)
		}()
	}
}

// What a procedure declares is told.
func TestTraits(t *testing.T) {
	a := agent.New(agent.Config{Name: "web01"})
	offer(a, "p", func(context.Context) (int, error) { return 0, nil }, agent.Exclusive(), agent.Dangerous(), agent.DryRun(), agent.ReadOnly(), agent.Idempotent())
	doc := a.Procedures()[0]
	if got := strings.Join(doc.Traits, " "); got != "exclusive dangerous dry_run read_only" || !doc.Idempotent {
		t.Errorf("it declares %q, idempotent %v", got, doc.Idempotent)
	}
}

// A dry run is for procedures that have one.
func TestDryRun(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offer(a, "plain", func(context.Context) (bool, error) { t.Error("it was run"); return false, nil })
		offer(a, "careful", func(ctx context.Context) (bool, error) {
			info, _ := agent.FromContext(ctx)
			return info.DryRun, nil
		}, agent.DryRun())
		d, _, _ := connect(t, p, a)
		dry := func(_ *wire.Call, r *harp.Request) { r.DryRun, r.Needs = true, []string{harp.NeedDryRun} }
		if f := d.call("plain", nil, dry).refused(); f.Type != "dry_run" || !errors.Is(f.Err(), harp.ErrRejected) {
			t.Errorf("one without is refused with %+v", f)
		}
		if !value[bool](t, d.call("careful", nil, dry).accepted().end()) || value[bool](t, d.call("careful", nil).accepted().end()) {
			t.Error("it is not told whether it is one")
		}
	})
}

// Lines of the log are records, and a sign of life.
func TestLog(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		offer(a, "talk", func(ctx context.Context) (int, error) {
			log := agent.Log(ctx).With("unit", "nginx").WithGroup("g")
			for range 3 {
				time.Sleep(40 * time.Second) // of virtual time
				log.InfoContext(ctx, "two\nlines", slog.Int("n", 1))
			}
			agent.Log(ctx).Debug(strings.Repeat("x", 100<<10))
			<-ctx.Done()
			agent.Log(ctx).Warn("stopped")
			return 0, context.Cause(ctx)
		})
		d, _, _ := connect(t, p, a)
		x := d.call("talk", nil, limits(time.Minute, 0)).accepted()
		end, records := x.ended()
		synctest.Wait()
		if end.Stopped == nil || end.Stopped.Cause != wire.CauseTimeout || len(records) != 5 {
			t.Fatalf("END %+v after %d records", end.Stopped, len(records))
		}
		var text string
		if err := harp.Value(records[0].Value).Decode(&text); err != nil || records[0].Kind != "log" || text != `level=INFO msg="two\nlines" unit=nginx g.n=1` {
			t.Errorf("the first is a %s: %s %v", records[0].Kind, text, err)
		}
		if err := harp.Value(records[3].Value).Decode(&text); err != nil || len(text) > 64<<10 || !strings.HasSuffix(text, "[cut]") {
			t.Errorf("a long line has %d bytes, %v", len(text), err)
		}
		if err := harp.Value(records[4].Value).Decode(&text); err != nil || text != "level=WARN msg=stopped" {
			t.Errorf("the last is %s %v", text, err)
		}
	})
	inMemory(t, func(t *testing.T, p place) { // where no line fits a record all are cut
		a := newAgent(t, p, func(c *agent.Config) { c.Limits.MaxRecord = 1 })
		offer(a, "talk", func(ctx context.Context) (int, error) { agent.Log(ctx).Info("hello"); return 7, nil })
		d, _, _ := connect(t, p, a)
		end, records := d.call("talk", nil).accepted().ended()
		if value[int](t, end) != 7 || len(records) != 1 {
			t.Fatalf("END %+v after %+v", end, records)
		}
		var text string
		if err := harp.Value(records[0].Value).Decode(&text); err != nil || text != " [cut]" {
			t.Errorf("it is %q, %v", text, err)
		}
	})
	if agent.Log(t.Context()) != slog.Default() {
		t.Error("elsewhere it is not the default")
	}
}
