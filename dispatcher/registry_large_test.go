package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// manyHosts are hosts with labels, of more than 1 MiB together.
func manyHosts(n int) []dispatcher.HostSpec {
	specs := make([]dispatcher.HostSpec, n)
	for i := range specs {
		specs[i] = dispatcher.HostSpec{Name: fmt.Sprintf("host%05d", i), Labels: map[string]string{
			"datacentre": "frankfurt-1", "rack": fmt.Sprint(i / 40), "role": "web", "operating-system": "debian 13", "team": "platform",
			"number": fmt.Sprint(i),
		}}
	}
	return specs
}

// A registry may be as long as it is: it is read, kept, and there after a restart.
func TestALongRegistryNeverLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		disk, registry := memory.NewDisk(), &changing{}
		registry.set(nil, manyHosts(n)...)
		open := func() *dispatcher.Dispatcher {
			d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: registry}))
			synctest.Wait()
			return d
		}
		knows := func(d *dispatcher.Dispatcher, hosts int) {
			t.Helper()
			caller := d.Caller()
			defer caller.Close()
			got := 0
			for h, err := range caller.Hosts().List(t.Context(), "") {
				if err != nil || h.Labels["number"] != fmt.Sprint(got) {
					t.Fatalf("host %d is %+v, %v", got, h, err)
				}
				got++
			}
			if got != hosts {
				t.Errorf("it knows %d hosts of %d", got, hosts)
			}
			if err := d.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		knows(open(), n)
		registry.set(errors.New("no such script"))
		knows(open(), n)
		registry.set(nil, manyHosts(3)...)
		knows(open(), 3)
		registry.set(errors.New("no such script"))
		knows(open(), 3)
	})
}

// unemptiedStore is a store that cannot replace a document by an empty one.
type unemptiedStore struct{ store.Store }

func (s unemptiedStore) PutDocument(ctx context.Context, kind, name string, content []byte) error {
	if len(content) == 0 {
		return harp.ErrNoSpace
	}
	return s.Store.PutDocument(ctx, kind, name, content)
}

// A registry that is stored is the one, though what was stored before cannot be deleted.
func TestARegistryThatIsStoredIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &changing{}
		sys := newSystem(t, embedded, unemptiedStore{memory.Open(nil)}, dispatcher.Config{Hosts: registry})
		for _, name := range []string{"web01", "web02"} {
			registry.set(nil, dispatcher.HostSpec{Name: name})
			if n, err := sys.caller.Hosts().Refresh(t.Context()); err != nil || n != 1 {
				t.Errorf("refresh gives %d hosts, %v", n, err)
			}
			must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), name))
		}
	})
}

// damagedDocument is a store of which one document is damaged until it is replaced.
type damagedDocument struct {
	store.Store
	name     string
	replaced atomic.Bool
}

func (s *damagedDocument) Document(ctx context.Context, kind, name string) ([]byte, error) {
	if name == s.name && !s.replaced.Load() {
		return nil, store.ErrDamaged
	}
	return s.Store.Document(ctx, kind, name)
}

func (s *damagedDocument) PutDocument(ctx context.Context, kind, name string, content []byte) error {
	if name == s.name {
		s.replaced.Store(true)
	}
	return s.Store.PutDocument(ctx, kind, name, content)
}

// A stored registry that is damaged is as good as none: the dispatcher opens, and stores what
// the registry's source says.
func TestADamagedRegistryIsReplaced(t *testing.T) {
	for _, damaged := range []string{"hosts", "hosts.1.0"} {
		t.Run(damaged, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, registry := memory.NewDisk(), &changing{}
				knows := func(want int, name string) {
					t.Helper()
					st := &damagedDocument{Store: memory.OpenDisk(disk, nil), name: name}
					d := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Hosts: registry}))
					synctest.Wait()
					caller, got := d.Caller(), 0
					for _, err := range caller.Hosts().List(t.Context(), "") {
						if err != nil {
							t.Error(err)
						}
						got++
					}
					if got != want {
						t.Errorf("it knows %d hosts, want %d", got, want)
					}
					if err := errors.Join(caller.Close(), d.Shutdown(t.Context())); err != nil {
						t.Error(err)
					}
				}
				failing := errors.New("no such script")
				registry.set(nil, manyHosts(3)...)
				knows(3, "")
				registry.set(failing)
				knows(0, damaged)
				registry.set(nil, manyHosts(3)...)
				knows(3, damaged)
				registry.set(failing)
				knows(3, "")
			})
		})
	}
}

// hangingHosts is a registry whose source does not answer, as often as said, until it is
// told to stop.
type hangingHosts struct {
	hangs atomic.Int64
	hosts []dispatcher.HostSpec
}

func (h *hangingHosts) Hosts(ctx context.Context) ([]dispatcher.HostSpec, error) {
	if h.hangs.Add(-1) < 0 {
		return h.hosts, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A source that hangs once is asked again, and holds up no caller that asks meanwhile.
func TestAHungRegistryIsNeverReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := &hangingHosts{hosts: []dispatcher.HostSpec{{Name: "web01"}}}
		hanging.hangs.Store(1)
		sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: hanging})
		time.Sleep(10 * time.Minute)
		if err := sys.d.Health(t.Context()).Checks["registry"]; err == nil {
			t.Error("the dispatcher does not say that its registry hangs")
		}
		time.Sleep(10 * time.Minute)
		if _, err := sys.caller.Hosts().Get(t.Context(), "web01"); err != nil {
			t.Fatalf("after the next refresh: %v", err)
		}
		hanging.hangs.Store(1000)
		go sys.caller.Hosts().Refresh(t.Context()) //nolint:errcheck // it hangs
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := sys.caller.Hosts().Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("who asks meanwhile gets %v after %v", err, time.Since(begun))
		}
		if _, err := sys.caller.Hosts().Refresh(t.Context()); !errors.Is(err, harp.ErrUnavailable) {
			t.Errorf("who waits for it gets %v", err)
		}
	})
}

// slowHosts is a registry that is read when the test lets it, and for as long as its ctx
// lasts.
type slowHosts struct {
	begun   chan struct{} // has a value for each reading
	proceed chan struct{} // each takes one to end
}

func (h *slowHosts) Hosts(ctx context.Context) ([]dispatcher.HostSpec, error) {
	h.begun <- struct{}{}
	select {
	case <-h.proceed:
		return []dispatcher.HostSpec{{Name: "web01"}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A refresh that somebody asked for is done, whether they wait for it or not, and says
// nothing of the registry that is not so.
func TestARefreshGoesOnThoughWhoeverAskedHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowHosts{begun: make(chan struct{}), proceed: make(chan struct{})}
		sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: slow})
		<-slow.begun
		slow.proceed <- struct{}{}
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := sys.caller.Hosts().Refresh(ctx)
			left <- err
		}()
		<-slow.begun
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who has left gets %v", err)
		}
		synctest.Wait()
		if err := sys.d.Health(t.Context()).Checks["registry"]; err != nil {
			t.Errorf("the registry is said to have failed: %v", err)
		}

		// Who asks while it is read is answered by the reading after it, one for all.
		type answer struct {
			hosts int
			err   error
		}
		answers := make(chan answer, 3)
		for range cap(answers) {
			go func() {
				n, err := sys.caller.Hosts().Refresh(t.Context())
				answers <- answer{n, err}
			}()
		}
		synctest.Wait()
		slow.proceed <- struct{}{}
		<-slow.begun
		synctest.Wait()
		if n := len(answers); n > 0 {
			t.Errorf("%d are answered by what was read before they asked", n)
		}
		slow.proceed <- struct{}{}
		for range cap(answers) {
			if a := <-answers; a.hosts != 1 || a.err != nil {
				t.Errorf("they get %d hosts, %v", a.hosts, a.err)
			}
		}
		synctest.Wait()
		select {
		case <-slow.begun:
			t.Error("it is read once more, for nobody")
		default:
		}
	})
}

// TestHostsMayBeInAnyWindowBeforeTheRegistryIsRead: by its labels a host may be in a window. While these are not known, as the registry was never
// read, or what is stored of it is damaged and its source fails, what the window would keep back waits.
func TestHostsMayBeInAnyWindowBeforeTheRegistryIsRead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{false: "new", true: "damaged"}[restart], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, disk, registry := t.Context(), memory.NewDisk(), &changing{}
				db := dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"role": "db"}}
				damaged := ""
				if restart {
					registry.set(nil, db)
					first := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{Hosts: registry})
					synctest.Wait()
					ok(t, first.caller.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "role=db", From: time.Now().Add(-time.Hour)}))
					ok(t, first.d.Shutdown(ctx))
					damaged = "hosts"
				}
				registry.set(errors.New("no such script"))
				sys := newSystem(t, embedded, &damagedDocument{Store: memory.OpenDisk(disk, nil), name: damaged}, dispatcher.Config{Hosts: registry})
				synctest.Wait()
				if !restart {
					ok(t, sys.caller.Maintenance().Put(ctx, harp.Window{Name: "w", Target: "role=db", From: time.Now().Add(-time.Hour)}))
				}
				ok(t, sys.caller.Maintenance().Put(ctx, harp.Window{Name: "other", Target: "web02", Mode: harp.WindowRefuse, From: time.Now().Add(-time.Hour)}))
				sys.agent("web01", greeter)
				job := must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "hello", harp.Args{"name": "you"}))
				time.Sleep(time.Second)
				synctest.Wait()
				if s := must[harp.JobStatus](t)(job.Status(ctx)); s.State != harp.StateQueued {
					t.Errorf("while nobody can say whether web01 is in the window its job is %s", s.State)
				}
				registry.set(nil, db)
				must[int](t)(sys.caller.Hosts().Refresh(ctx))
				job = must[*harp.Job](t)(sys.caller.Host("web01").Call(ctx, "hello", harp.Args{"name": "you"}))
				time.Sleep(time.Second)
				synctest.Wait()
				if s := must[harp.JobStatus](t)(job.Status(ctx)); s.State != harp.StateQueued {
					t.Errorf("as the registry is read it is %s", s.State)
				}
				registry.set(nil, dispatcher.HostSpec{Name: "web01", Labels: map[string]string{"role": "web"}})
				must[int](t)(sys.caller.Hosts().Refresh(ctx))
				time.Sleep(time.Second)
				synctest.Wait()
				if s := must[harp.JobStatus](t)(job.Status(ctx)); s.State != harp.StateSucceeded {
					t.Errorf("on a host that is in no window it is %s", s.State)
				}
			})
		})
	}
}
