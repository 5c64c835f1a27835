package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/transport"
)

// lostOnce runs an operation of a far caller, whose answer is lost with the connection:
// after meanwhile the caller asks again, and the operation returns.
func lostOnce(t *testing.T, sys *system, operation func(far *harp.Caller) error, meanwhile func()) {
	t.Helper()
	addr, tc, dial := sys.net.dial("dispatcher", "operator", transport.RoleCaller)
	far := must[*harp.Caller](t)(client.Dial(t.Context(), addr, client.Config{TLS: tc, Dial: dial}))
	defer far.Close()
	synctest.Wait()
	from := transport.Identity{Fleet: fleet, Role: transport.RoleDispatcher, Name: "dispatcher"}
	to := transport.Identity{Fleet: fleet, Role: transport.RoleCaller, Name: "operator"}
	answers := sys.net.mem.Path(from, to)
	answers.Block()
	done := make(chan error, 1)
	go func() { done <- operation(far) }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("it was answered: %v", err)
	default:
	}
	meanwhile()
	sys.net.mem.Reset(from, to)
	synctest.Wait()
	answers.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// A queue is cancelled once: what is submitted between the cancel and its repeat, which a
// lost connection makes, is not touched.
func TestCancellingAQueueAgainCancelsWhatCameSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		call := func(queue harp.Args) *harp.Job {
			return must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Queue(queue), harp.OfflineWait(harp.NoLimit)))
		}
		for name, c := range map[string]struct {
			queue harp.Args
			first int // jobs in the queue when it is cancelled
		}{
			"one job":                       {harp.Args{"q": 1}, 1},
			"a queue that another job kept": {harp.Args{"q": 2}, 2},
		} {
			for range c.first {
				call(c.queue)
			}
			var since *harp.Job
			cancelled := -1
			lostOnce(t, sys,
				func(far *harp.Caller) (err error) {
					cancelled, err = far.Queues().Cancel(t.Context(), c.queue)
					return err
				},
				func() { since = call(c.queue) })
			if s := must[harp.JobStatus](t)(since.Status(t.Context())); s.State != harp.StateQueued {
				t.Errorf("%s: what was submitted after the cancel is %s", name, s.State)
			}
			if cancelled != c.first {
				t.Errorf("%s: the caller is told of %d jobs", name, cancelled)
			}
		}
	})
}

// A queue that was not there when it was cancelled is not cancelled later.
func TestCancellingNoQueueAgainCancelsWhatCameSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		var since *harp.Job
		lostOnce(t, sys,
			func(far *harp.Caller) error {
				if _, err := far.Queues().Cancel(t.Context(), harp.Args{"q": 1}); !errors.Is(err, harp.ErrNotFound) {
					t.Errorf("it returns %v", err)
				}
				return nil
			},
			func() {
				since = must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Queue(harp.Args{"q": 1}), harp.OfflineWait(harp.NoLimit)))
			})
		if s := must[harp.JobStatus](t)(since.Status(t.Context())); s.State != harp.StateQueued {
			t.Errorf("what was submitted after the cancel is %s", s.State)
		}
	})
}

// A change of a queue is made once: a repeat does not undo what another operator has
// changed since.
func TestChangingAQueueAgainUndoesAnothersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		queue, queues := harp.Args{"q": 1}, sys.caller.Queues()
		must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.Queue(queue), harp.OfflineWait(harp.NoLimit)))
		lostOnce(t, sys,
			func(far *harp.Caller) error { return far.Queues().Pause(t.Context(), queue, "", time.Time{}) },
			func() {
				if err := queues.Unpause(t.Context(), queue); err != nil {
					t.Error(err)
				}
			})
		lostOnce(t, sys,
			func(far *harp.Caller) error { return far.Queues().SetConcurrency(t.Context(), queue, 7) },
			func() {
				if err := queues.SetConcurrency(t.Context(), queue, 3); err != nil {
					t.Error(err)
				}
			})
		until := time.Now().Add(time.Second)
		lostOnce(t, sys,
			func(far *harp.Caller) error { return far.Queues().Pause(t.Context(), queue, "", until) },
			func() { time.Sleep(2 * time.Second) }) // until it is over
		if q := must[harp.QueueStatus](t)(queues.Get(t.Context(), queue)); q.Paused || q.Concurrency != 3 {
			t.Errorf("paused is %t and concurrency %d, though the last to change it said false and 3", q.Paused, q.Concurrency)
		}
	})
}

// A schedule that was not paused as it was unpaused stays paused by whoever pauses it before that is asked again.
func TestUnpausingAScheduleAgainUndoesAnothersPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		schedules := sys.caller.Schedules()
		ok(t, schedules.Put(t.Context(), harp.Schedule{Name: "s", Cron: "@hourly", Request: harp.Request{Target: "web01", Procedure: "work", Needs: []string{harp.NeedBatch}}}))
		lostOnce(t, sys,
			func(far *harp.Caller) error { return far.Schedules().Unpause(t.Context(), "s") },
			func() { ok(t, schedules.Pause(t.Context(), "s", "disk", time.Time{})) })
		if s := must[harp.ScheduleStatus](t)(schedules.Get(t.Context(), "s")); s.Pause == nil || s.Pause.Reason != "disk" {
			t.Errorf("its pause is %+v", s.Pause)
		}
	})
}

// A host is removed once: one that came back before that is asked again stays, with what it was given since, and its
// caller is told what the first removal did.
func TestRemovingAHostAgainForgetsOneThatCameBack(t *testing.T) {
	for name, stays := range map[string]bool{"connected": true, "away again": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, inMemory, nil, dispatcher.Config{})
				hosts := sys.caller.Hosts()
				must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i")).tr.Close(nil)
				synctest.Wait()
				must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil, harp.OfflineWait(harp.NoLimit)))
				removed := -1
				lostOnce(t, sys,
					func(far *harp.Caller) (err error) {
						removed, err = far.Hosts().Remove(t.Context(), "web01")
						return err
					},
					func() {
						agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
						synctest.Wait()
						must[int](t)(hosts.Label(t.Context(), "web01", map[string]string{"role": "web"}))
						if !stays {
							agent.tr.Close(nil)
							synctest.Wait()
						}
					})
				if removed != 1 {
					t.Errorf("the caller is told of %d jobs", removed)
				}
				if h, err := hosts.Get(t.Context(), "web01"); err != nil || h.Online != stays || h.Labels["role"] != "web" {
					t.Errorf("the host that came back is %+v, %v", h, err)
				}
			})
		})
	}
}

// A window that was not there, or not open, as it was deleted or ended stays as whoever puts it before that is asked again wants it.
func TestEndingNoWindowAgainEndsAnothers(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, m *harp.Maintenance) error{
		"delete": func(ctx context.Context, m *harp.Maintenance) error { return m.Delete(ctx, "w") },
		"end":    func(ctx context.Context, m *harp.Maintenance) error { return m.End(ctx, "w") },
	} {
		for _, isThere := range []bool{false, true} {
			if isThere && name == "delete" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%t", name, isThere), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
					m, want := sys.caller.Maintenance(), harp.ErrNotFound
					if isThere {
						want = harp.ErrConflict
						ok(t, m.Put(t.Context(), harp.Window{Name: "w", Target: "*", From: time.Now().Add(time.Hour)}))
					}
					lostOnce(t, sys,
						func(far *harp.Caller) error {
							if err := end(t.Context(), far.Maintenance()); !errors.Is(err, want) {
								t.Errorf("it returns %v", err)
							}
							return nil
						},
						func() { ok(t, m.Put(t.Context(), harp.Window{Name: "w", Target: "*", From: time.Now()})) })
					if v := must[harp.Verdict](t)(m.Why(t.Context(), "web01", "work", time.Time{})); v.May {
						t.Error("something may start in a window that was put")
					}
				})
			})
		}
	}
}

// So stays all else that was not there as it was deleted.
func TestDeletingNothingAgainDeletesAnothers(t *testing.T) {
	kinds := append(slices.Clone(documentKinds), documentKind{"schedules", 0, func(ctx context.Context, c *harp.Caller, name string) error {
		return c.Schedules().Put(ctx, harp.Schedule{Name: name, Cron: "@hourly", Request: harp.Request{Target: "web01", Procedure: "work", Needs: []string{harp.NeedBatch}}})
	}})
	deletes := map[string]func(ctx context.Context, c *harp.Caller, name string) error{
		"groups":  func(ctx context.Context, c *harp.Caller, name string) error { return c.Groups().Delete(ctx, name) },
		"windows": func(ctx context.Context, c *harp.Caller, name string) error { return c.Maintenance().Delete(ctx, name) },
		"notifications": func(ctx context.Context, c *harp.Caller, name string) error {
			return c.Notifications().Delete(ctx, name)
		},
		"retention rules": func(ctx context.Context, c *harp.Caller, name string) error { return c.Retention().Delete(ctx, name) },
		"schedules":       func(ctx context.Context, c *harp.Caller, name string) error { return c.Schedules().Delete(ctx, name) },
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, inMemory, nil, dispatcher.Config{
					Hosts: dispatcher.StaticHosts{{Name: "web01"}}, Senders: []notify.Sender{anySender{}},
				})
				remove := deletes[kind.name]
				lostOnce(t, sys,
					func(far *harp.Caller) error {
						if err := remove(t.Context(), far, "n"); !errors.Is(err, harp.ErrNotFound) {
							t.Errorf("it returns %v", err)
						}
						return nil
					},
					func() { ok(t, kind.put(t.Context(), sys.caller, "n")) })
				ok(t, remove(t.Context(), sys.caller, "n")) // it is there
			})
		})
	}
}

// Documents of which nothing was to be changed stay as whoever applies others, before that is asked again, wants them.
func TestApplyingNothingAgainUndoesAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
		apply := func(c *harp.Caller, names ...string) error {
			var documents []harp.Document
			for _, name := range names {
				documents = append(documents, harp.Document{Window: &harp.Window{Name: name, Target: "*", Cron: "* * * * *", For: time.Minute}})
			}
			_, err := c.Schedules().Apply(t.Context(), "site", documents, harp.ApplyOptions{Prune: true})
			return err
		}
		ok(t, apply(sys.caller, "old"))
		lostOnce(t, sys,
			func(far *harp.Caller) error { return apply(far, "old") },
			func() { ok(t, apply(sys.caller, "new")) })
		if _, err := sys.caller.Maintenance().Get(t.Context(), "new"); err != nil {
			t.Errorf("what was applied since: %v", err)
		}
		if _, err := sys.caller.Maintenance().Get(t.Context(), "old"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("what was deleted since: %v", err)
		}
	})
}

// Hosts that a target did not select as it was unpaused, paused or labelled stay as whoever has it select them then wants them.
func TestChangingNoHostsAgainChangesOthers(t *testing.T) {
	second := func(_ int, err error) error { return err }
	for name, change := range map[string]func(ctx context.Context, h *harp.Hosts) error{
		"unpause": func(ctx context.Context, h *harp.Hosts) error { return second(h.Unpause(ctx, "role=db")) },
		"pause": func(ctx context.Context, h *harp.Hosts) error {
			return second(h.Pause(ctx, "role=db", "mine", time.Time{}))
		},
		"label": func(ctx context.Context, h *harp.Hosts) error {
			return second(h.Label(ctx, "role=db", map[string]string{"env": "dev"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := newSystem(t, inMemory, nil, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}})
				hosts := sys.caller.Hosts()
				lostOnce(t, sys,
					func(far *harp.Caller) error {
						if err := change(t.Context(), far.Hosts()); !errors.Is(err, harp.ErrNotFound) {
							t.Errorf("it returns %v", err)
						}
						return nil
					},
					func() {
						must[int](t)(hosts.Label(t.Context(), "web01", map[string]string{"role": "db", "env": "prod"}))
						must[int](t)(hosts.Pause(t.Context(), "role=db", "disk", time.Time{}))
					})
				h := must[harp.HostStatus](t)(hosts.Get(t.Context(), "web01"))
				if h.Pause == nil || h.Pause.Reason != "disk" || h.Labels["env"] != "prod" {
					t.Errorf("its pause is %+v, its labels %v", h.Pause, h.Labels)
				}
			})
		})
	}
}
