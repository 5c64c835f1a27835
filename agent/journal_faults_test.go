package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// TestUnspooledRecords checks that records for which the journal had no room stay in
// memory as long as the agent does, though the end is journalled and the journal is
// opened anew.
func TestUnspooledRecords(t *testing.T) {
	const many, size = 200, 1000
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, func(a *agent.Agent) {
			agent.HandleStream(a, harp.NewStreamProc[none, []byte, int]("flood"), func(_ context.Context, _ none, emit func([]byte) error) (int, error) {
				for range many {
					if err := emit(make([]byte, size)); err != nil {
						return 0, err
					}
				}
				return many, nil
			})
		}, agent.Limits{MaxJobSpool: 20 * size})
		x := m.peer.call("flood", nil).accepted()
		time.Sleep(time.Minute)
		m.run.stop()
		m.run.wait()
		m.run = run(t, func(ctx context.Context) error { return m.agent.Connect(ctx, m.d.addr) })
		m.peer = <-m.d.sessions
		m.checkHeld(x, wire.HeldEnded, many)
		y := m.peer.resume(x.id, 0)
		expect[wire.Records](y, wire.TypeRecords)
		m.lose()
		end, records := m.peer.resume(x.id, 0).ended()
		if value[int](t, end) != many || len(records) != many {
			t.Errorf("END %+v after %d records", end, len(records))
		}
	})
}

// TestResumeMissing checks that who asks for records that cannot be takes nobody's
// place, and who asks for those that were acknowledged is told that they are gone.
func TestResumeMissing(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		m := newMachine(t, p, newCounter().offer, agent.Limits{MaxAttempts: 1})
		x := m.peer.call("count", nil).accepted()
		expect[wire.Records](x, wire.TypeRecords)
		time.Sleep(time.Second)
		x.ack(5)
		time.Sleep(time.Second)
		m.crash()
		if _, err := m.peer.resume(x.id, -1).x.Receive(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("from -1: %v", err)
		}
		value[int64](t, m.peer.call("once", nil).accepted().end())
		_, records := m.peer.resume(x.id, 0).ended()
		checkGone(t, records, 5, 10)
	})
}

// checkGone checks that of so many records the first are told as dropped.
func checkGone(t *testing.T, records []wire.Record, gone, all int) {
	t.Helper()
	if len(records) != all {
		t.Errorf("%d records, want %d", len(records), all)
	}
	for i, r := range records {
		if (r.Truncated > 0) != (i < gone) || (len(r.Value) == 0) != (i < gone) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

// TestOtherStoreAsks checks that a dispatcher whose store is another one, as after a
// restore, gets what there is of an attempt that the one before had records of:
// whether it calls or resumes it, and whether the records had reached the journal when
// they were acknowledged.
func TestOtherStoreAsks(t *testing.T) {
	for _, written := range []bool{false, true} {
		for _, gone := range []int64{4, 10} {
			for _, restarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("written=%v,gone=%d,restarted=%v", written, gone, restarted), func(t *testing.T) {
					inMemory(t, func(t *testing.T, p place) { testOtherStoreAsks(t, p, written, gone, restarted) })
				})
			}
		}
	}
}

func testOtherStoreAsks(t *testing.T, p place, written bool, gone int64, restarted bool) {
	c := newCounter()
	m := newMachine(t, p, c.offer, agent.Limits{})
	again := []func(*wire.Call, *harp.Request){again(&exchange{id: harp.NewID()}), limits(harp.NoLimit, harp.NoLimit)}
	x := m.peer.call("count", nil, again...).accepted()
	synctest.Wait()
	if written {
		time.Sleep(time.Second)
	}
	for got := 0; got < 10; {
		got += len(expect[wire.Records](x, wire.TypeRecords).Records)
	}
	x.ack(gone)
	synctest.Wait()
	close(c.release)
	synctest.Wait()
	m.d.set(func(d *dispatcher) { d.welcome.Store = "other" })
	m.lose()
	m.peer.forget(m.peer.held...)
	if restarted {
		time.Sleep(time.Second)
		m.crash()
	}
	m.checkHeld(x, wire.HeldEnded, 10)
	y := m.peer.call("count", nil, again...).accepted()
	expect[wire.Records](y, wire.TypeRecords)
	m.lose()
	end, records := m.peer.resume(x.id, 0).ended()
	if value[int](t, end) != 0 {
		t.Errorf("END %+v", end)
	}
	checkGone(t, records, int(gone), 10)
	if n := c.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// TestBrokenBeforeHeld checks that a journal that breaks while a session begins is
// not listed: a start that may be on disk would be called absent.
func TestBrokenBeforeHeld(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		ill.anyway = true
		var a *agent.Agent
		id, sessions := harp.NewID(), 0
		a = newAgent(t, p, func(c *agent.Config) {
			c.Journal = ill
			c.Facts = func(context.Context) (map[string]any, error) {
				if sessions++; sessions == 1 {
					ill.fail(errors.New("input/output error"))
					if err := a.JournalStart(id); !errors.Is(err, journal.ErrBroken) {
						t.Errorf("AcceptStart: %v", err)
					}
					ill.heal()
				}
				return nil, nil
			}
		})
		s, _, _ := connect(t, p, a)
		if h := s.held; len(h) != 1 || h[0].Job != id || h[0].State != wire.HeldGone || sessions != 2 {
			t.Errorf("held %+v in session %d", h, sessions)
		}
	})
}

// TestJournalRolledBack checks that an attempt of which the journal has lost the
// start is not started again, neither while it runs nor later.
func TestJournalRolledBack(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		c := newCounter()
		disk := journal.NewMemory()
		ill := newAiling(disk.Mount())
		m := &machine{t: t, p: p, d: listen(t, p), disk: disk, offers: c.offer}
		m.start(ill)
		names, err := disk.List()
		if err != nil || len(names) != 1 {
			t.Fatalf("files %q, %v", names, err)
		}
		before := disk.Bytes(names[0])
		x := m.peer.call("count", nil, limits(harp.NoLimit, harp.NoLimit)).accepted()
		expect[wire.Records](x, wire.TypeRecords)
		time.Sleep(time.Second)
		ill.fail(errors.New("input/output error"))
		x.ack(3)
		m.peer.call("once", nil)
		<-m.peer.session.Done()
		disk.Put(names[0], before)
		ill.heal()
		m.peer = <-m.d.sessions
		y := m.peer.call("count", nil, again(x)).accepted()
		close(c.release)
		for {
			if f := y.receive(); f.Type == wire.TypeEnd {
				var end wire.End
				if err := wire.Decode(f.Body, &end); err != nil {
					t.Fatal(err)
				}
				y.ackEnd(end)
				break
			}
		}
		synctest.Wait()
		m.peer.call("count", nil, again(x)).tombstone()
		if n := c.runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestUnreadable checks a journal that is damaged while it is open: a record that
// cannot be read is told as dropped, an attempt whose end cannot be read as gone, and
// nothing else is concerned.
func TestUnreadable(t *testing.T) {
	for name, damaged := range map[string]string{"records": "record 5", "end": "the end"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) { testUnreadable(t, p, damaged) })
		})
	}
}

func testUnreadable(t *testing.T, p place, damaged string) {
	var runs atomic.Int64
	m := newMachine(t, p, func(a *agent.Agent) {
		agent.HandleStream(a, harp.NewStreamProc[none, string, string]("slow"), func(_ context.Context, _ none, emit func(string) error) (string, error) {
			runs.Add(1)
			for i := range 10 {
				if err := emit("record " + string(rune('0'+i))); err != nil {
					return "", err
				}
				time.Sleep(time.Second) // each is written by itself
			}
			return "the end", nil
		})
	}, agent.Limits{})
	x := m.peer.call("slow", nil).accepted()
	other := m.peer.call("slow", nil).accepted()
	time.Sleep(time.Minute)
	m.lose() // the journal alone has them
	m.damage(x.id, damaged)
	end, records := m.peer.resume(x.id, 0).ended()
	if end.Gone != (damaged == "the end") || !end.Gone && value[string](t, end) != "the end" || end.Records != 10 || end.Started == nil {
		t.Errorf("END %+v", end)
	}
	for i, r := range records {
		if dropped := damaged == "record 5" && i == 5; (r.Truncated > 0) != dropped || (len(r.Value) == 0) != dropped {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if end, records := m.peer.resume(other.id, 0).ended(); end.Gone || len(records) != 10 {
		t.Errorf("END %+v after %d records", end, len(records))
	}
	synctest.Wait()
	m.peer.call("slow", nil, again(x)).tombstone()
	if n := runs.Load(); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// damage changes, on disk, a text in an entry of a job.
func (m *machine) damage(job, text string) {
	m.t.Helper()
	names, err := m.disk.List()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, name := range names {
		data := m.disk.Bytes(name)
		for from := 0; ; {
			at := bytes.Index(data[from:], []byte(job))
			if at < 0 {
				break
			}
			from += at + len(job)
			if near := data[from:min(from+60, len(data))]; bytes.Contains(near, []byte(text)) {
				near[bytes.Index(near, []byte(text))]++
				m.disk.Put(name, data)
				return
			}
		}
	}
	m.t.Fatalf("no %q of job %s on disk", text, job)
}
