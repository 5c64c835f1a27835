package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// Who waits for a member whose host is not reached any more is told so, whatever ended its batch.
func TestWaitForAMemberThatIsNotReached(t *testing.T) {
	for name, opts := range map[string][]harp.Option{
		"cancel":  nil,
		"failure": {harp.StopAfter("1"), harp.OnStop(harp.CancelBatch)},
	} {
		t.Run(name, func(t *testing.T) {
			everyWiring(t, func(t *testing.T, sys *system) {
				ctx := t.Context()
				sys.webs(3)
				b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "fail.on", failArgs{Hosts: []string{"web01"}},
					append(opts, harp.Parallel(1), harp.StartAfter(time.Now().Add(200*time.Millisecond)))...))
				var waiting sync.WaitGroup
				for _, host := range []string{"web02", "web03"} {
					waiting.Go(func() {
						_, err := b.Job(host).Get(ctx)
						if f := harp.FailureOf(err); f.Code != "cancelled" || f.Ran != harp.DidNotRun {
							t.Errorf("of %s it is told %v", host, err)
						}
					})
				}
				if opts == nil {
					if n, err := b.Cancel(ctx); n != 3 || err != nil {
						t.Errorf("cancelled are %d, %v", n, err)
					}
				}
				waiting.Wait()
			})
		})
	}
}

// Who waits for a member that is left out when the turn of its host comes is told so, whatever that turn came by.
func TestWaitForAMemberThatIsLeftOut(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(2)
		sys.agent("web03", greeter) // lacks the procedure
		sys.agent("web04", ofBatches)
		for name, opts := range map[string][]harp.Option{
			"time": {harp.StartAfter(time.Now().Add(200 * time.Millisecond))},
			"end":  {harp.Parallel(1), harp.StartAfter(time.Now().Add(200 * time.Millisecond))},
		} {
			b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, append(opts, harp.WhenUnfit(harp.SkipHost))...))
			_, err := b.Job("web03").Get(ctx)
			if f := harp.FailureOf(err); f.Code != "rejected" || f.Ran != harp.DidNotRun {
				t.Errorf("%s: of the host that is left out it is told %v", name, err)
			}
			ended(t, b, harp.BatchSucceeded, "")
		}
	})
}

// A member that is cancelled before the turn of its host is counted as one of which the log does not tell yet.
func TestCountOfMembersThatWereCancelledBeforeTheirTurn(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(ctx, "host.name", nil, harp.StartAfter(time.Now().Add(time.Hour))))
		must[bool](t)(b.Job("web02").Cancel(ctx))
		if s := must[harp.BatchStatus](t)(b.Status(ctx)); s.Early != 1 || s.Counts[harp.StateCancelled] != 1 {
			t.Errorf("it is %+v", s)
		}
		must[int](t)(b.Cancel(ctx))
		if s := must[harp.BatchStatus](t)(b.Wait(ctx)); s.Early != 0 || s.Counts[harp.StateCancelled] != 3 {
			t.Errorf("cancelled, it is %+v", s)
		}
		told := 0
		for _, err := range b.Results(ctx) {
			ok(t, err)
			told++
		}
		if told != 3 {
			t.Errorf("of 3 members the ends of %d are told", told)
		}
	})
}

// A member whose host is not reached holds nothing that could be given up, and is there all the same.
func TestForceLostOfAMemberThatIsNotReached(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(1)
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(ctx, "host.name", nil, harp.StartAfter(time.Now().Add(time.Hour))))
		if err := b.Job("web01").ForceLost(ctx, "gone"); !errors.Is(err, harp.ErrConflict) {
			t.Errorf("giving it up is answered with %v", err)
		}
		if err := b.Job("web02").ForceLost(ctx, "gone"); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("giving up what is none of it is answered with %v", err)
		}
		if _, err := b.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Only hosts that were connected when the dispatcher stopped are about to return when it is opened again: those that
// were away before are left out of a batch that skips such hosts, and do not fail it.
func TestHostsThatWereAwayBeforeARestartAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory.NewDisk()
		sys := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		leave := sys.agent("web01", ofBatches)
		sys.agent("web02", ofBatches)
		leave()
		synctest.Wait()
		if err := sys.d.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newSystem(t, embedded, memory.OpenDisk(disk, nil), dispatcher.Config{})
		b := must[*harp.Batch](t)(again.caller.Target("web*").Call(t.Context(), "host.name", nil, harp.WhenOffline(harp.SkipHost)))
		synctest.Wait()
		s := must[harp.BatchStatus](t)(b.Status(t.Context()))
		if s.Skipped[harp.ReasonOffline] != 1 || s.Counts[harp.StateQueued] != 1 {
			t.Errorf("at first it is %+v", s)
		}
		again.agent("web02", ofBatches)
		if s = ended(t, b, harp.BatchSucceeded, ""); s.Counts[harp.StateSucceeded] != 1 {
			t.Errorf("it ended as %+v", s)
		}
	})
}

// Followers of a batch are given the records that are stored, though those that came with them cannot be.
func TestFollowersOfABatchAreToldOfThePartThatIsStored(t *testing.T) {
	part := &partStore{err: harp.ErrNoSpace}
	onStore(t, func(st store.Store) store.Store { part.Store = st; return part }, func(t *testing.T, sys *system) {
		hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}
		asked := must[*rawAgent](t)(sys.greetRaw(t.Context(), hello)).exchanges(t)
		synctest.Wait()
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		ctx, cancel := context.WithCancel(t.Context())
		var followed []uint64
		var following sync.WaitGroup
		following.Go(func() {
			for r, err := range b.Follow(ctx, harp.Since(0)) {
				if err != nil {
					return
				}
				followed = append(followed, r.Record.Seq)
			}
		})
		synctest.Wait()
		part.fails.Store(true)
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1}, {Time: 2}, {Time: 3}, {Time: 4}}})
		synctest.Wait()
		if !slices.Equal(followed, []uint64{0, 1}) {
			t.Errorf("followed are %v of the two that are stored", followed)
		}
		cancel()
		following.Wait()
	})
}

// Followers of a batch are told of hosts that are left out because an agent that is busy gave its slot back.
func TestFollowersOfABatchAreToldWhoIsLeftOut(t *testing.T) {
	onStore(t, func(st store.Store) store.Store { return st }, func(t *testing.T, sys *system) {
		hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}
		asked := must[*rawAgent](t)(sys.greetRaw(t.Context(), hello)).exchanges(t)
		sys.agent("web02", greeter) // lacks the procedure
		synctest.Wait()
		b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(t.Context(), "work", nil, harp.Parallel(1), harp.WhenUnfit(harp.SkipHost)))
		m := <-asked
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		var following sync.WaitGroup
		following.Go(func() {
			for r, err := range b.Results(ctx, harp.Since(0)) {
				if err != nil {
					return
				}
				told = append(told, r.Host)
			}
		})
		synctest.Wait()
		m.sendFrame(t, wire.TypeNotNow, true, wire.NotNow{})
		synctest.Wait()
		if !slices.Equal(told, []string{"web02"}) {
			t.Errorf("told are the ends on %v", told)
		}
		cancel()
		following.Wait()
	})
}

// What is longer than a page of a batch's log is told all the same, and each of what was stored together once.
func TestABatchTellsWhatIsLongerThanAPage(t *testing.T) {
	onStore(t, func(st store.Store) store.Store { return st }, func(t *testing.T, sys *system) {
		hello := wire.Hello{Version: wire.Version, Instance: "i", Journal: "j", Features: []string{harp.NeedBatch}}
		asked := must[*rawAgent](t)(sys.greetRaw(t.Context(), hello)).exchanges(t)
		synctest.Wait()
		b := must[*harp.Batch](t)(sys.caller.Target("web01").Call(t.Context(), "work", nil))
		m := <-asked
		m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		half, long := must[harp.Value](t)(harp.NewValue(strings.Repeat("x", 600<<10))), must[harp.Value](t)(harp.NewValue(strings.Repeat("x", 3<<19)))
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{Records: []wire.Record{{Time: 1, Value: half}, {Time: 2, Value: half}}})
		m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: 2, Records: []wire.Record{{Time: 3, Value: long}}})
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Records: 3, Value: long})
		var told []int
		for _, r := range allOf(t, b.Follow(t.Context(), harp.Since(0))) {
			if r.End != nil {
				told = append(told, len(r.End.Value))
				continue
			}
			if told = append(told, len(r.Record.Value)); r.Record.Seq != uint64(len(told)-1) {
				t.Errorf("record %d is told after %d others", r.Record.Seq, len(told)-1)
			}
		}
		if want := []int{len(half), len(half), len(long), len(long)}; !slices.Equal(told, want) {
			t.Errorf("told are %v bytes, want %v", told, want)
		}
	})
}

// Members on more hosts than a page has rows, none of which was reached, are told each once, with a number of its own.
func TestManyHostsThatAreNotReachedAreTold(t *testing.T) {
	const hosts = wire.MaxRows + 100
	var specs dispatcher.StaticHosts
	for i := range hosts {
		specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%05d", i)})
	}
	ctx := t.Context()
	sys := newSystem(t, embedded, nil, dispatcher.Config{Hosts: specs})
	b := must[*harp.Batch](t)(sys.caller.Target("db*").Call(ctx, "work", nil, harp.StartAfter(time.Now().Add(time.Hour))))
	if n, err := b.Cancel(ctx); n != hosts || err != nil {
		t.Errorf("cancelled are %d, %v", n, err)
	}
	results := allOf(t, b.Results(ctx))
	for n, r := range results {
		if r.Seq != uint64(n) || r.Host != specs[n].Name || r.State != harp.StateCancelled {
			t.Fatalf("result %d is number %d, %s on %s", n, r.Seq, r.State, r.Host)
		}
	}
	if len(results) != hosts {
		t.Errorf("told are %d ends of %d", len(results), hosts)
	}
	for _, from := range []harp.StreamOption{harp.Since(hosts - 3), harp.Recent(3)} {
		if rest := allOf(t, b.Results(ctx, from)); len(rest) != 3 || rest[0].Host != specs[hosts-3].Name {
			t.Errorf("from there on %d are told, %+v", len(rest), rest)
		}
	}
}

// damagedMembers is a store in which the records of a job, or how others ended, are damaged.
type damagedMembers struct {
	store.Store
	records   string
	ends      map[string]func(*store.Job) (*store.Job, error) // what is read of them instead
	isDamaged atomic.Bool
}

func (s *damagedMembers) Read(ctx context.Context, id string, from uint64, most store.ReadLimit) ([]harp.Record, error) {
	if id == s.records && s.isDamaged.Load() {
		return nil, store.ErrDamaged
	}
	return s.Store.Read(ctx, id, from, most)
}

func (s *damagedMembers) Job(ctx context.Context, id string) (*store.Job, error) {
	job, err := s.Store.Job(ctx, id)
	if read := s.ends[id]; read != nil && s.isDamaged.Load() && err == nil {
		return read(job)
	}
	return job, err
}

// What is damaged of one member of a batch is shown as that, and hides nothing of the others.
func TestDamagedMemberHidesNoOther(t *testing.T) {
	damaged := &damagedMembers{Store: memory.Open(nil)}
	sys := newSystem(t, inMemory, damaged, dispatcher.Config{})
	sys.webs(5)
	id := harp.NewID()
	damaged.records = harp.MemberID(id, "web01", 1)
	damaged.ends = map[string]func(*store.Job) (*store.Job, error){
		harp.MemberID(id, "web02", 1): func(*store.Job) (*store.Job, error) { return nil, store.ErrDamaged },
		harp.MemberID(id, "web03", 1): func(*store.Job) (*store.Job, error) { return nil, harp.ErrNotFound },
		harp.MemberID(id, "web04", 1): func(j *store.Job) (*store.Job, error) { // a life that it had before
			older := *j
			older.State = harp.StateRunning
			return &older, nil
		},
	}
	b := must[*harp.Batch](t)(sys.caller.Target("web*").Call(t.Context(), "count", countArgs{To: 20}, harp.JobID(id)))
	ended(t, b, harp.BatchSucceeded, "")
	damaged.isDamaged.Store(true)
	records, ends := map[string]uint64{}, map[string]harp.Result{}
	for _, r := range allOf(t, b.Follow(t.Context(), harp.Since(0))) {
		if r.End != nil {
			ends[r.Host] = *r.End
			continue
		}
		records[r.Host] += max(r.Record.Missing, 1)
		if r.Host == "web01" && r.Record.Missing == 0 {
			t.Errorf("of web01 %+v is told", r.Record)
		}
	}
	for _, host := range []string{"web01", "web02", "web03", "web04", "web05"} {
		if records[host] != 20 || ends[host].State == "" {
			t.Errorf("of %s %d records and the end %+v are told", host, records[host], ends[host])
		}
	}
	for _, host := range []string{"web02", "web03", "web04"} {
		if got := ends[host]; got.State != harp.StateLost || !errors.Is(got.Err, harp.ErrLost) || !strings.Contains(got.Err.Error(), "damaged") {
			t.Errorf("of %s the end %+v is told", host, got)
		}
	}
}

// A batch that is not stored does not count among the bytes of its principal.
func TestBytesOfABatchThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 1 << 20, Waiting: 1})
		if _, err := sys.caller.Hosts().Label(t.Context(), "web01", map[string]string{"k": "v"}); err != nil {
			t.Fatal(err)
		}
		ada := sys.callerAs("ada")
		big := harp.Args{"text": strings.Repeat("x", 600<<10)}
		wait := harp.OfflineWait(harp.NoLimit)
		_, err := ada.Target("web01").Call(t.Context(), "p", big, harp.Confirmed(strings.Repeat("0", 64)), wait)
		if !errors.Is(err, harp.ErrConflict) {
			t.Errorf("with another list confirmed: %v", err)
		}
		job := must[*harp.Job](t)(waitingCall(t.Context(), ada))
		_, err = ada.Target("web01").Call(t.Context(), "p", big, wait)
		wantRefused(t, err, "waiting")
		if _, err := job.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		id := harp.JobID(harp.NewID())
		b := must[*harp.Batch](t)(ada.Target("web01").Call(t.Context(), "p", big, id, wait))
		must[*harp.Batch](t)(ada.Target("web01").Call(t.Context(), "p", big, id, wait)) // it is stored already
		if _, err := b.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = ada.Target("web01").Call(t.Context(), "p", big, wait)
		wantRefused(t, err, "bytes_per_hour")
		time.Sleep(12 * time.Minute) // so that a fifth of what may be is forgotten
		must[*harp.Batch](t)(ada.Target("web01").Call(t.Context(), "p", big, wait))
	})
}

// A batch that is submitted again under its id counts once among the bytes of its principal, although there was room for it twice.
func TestBytesOfABatchThatIsSubmittedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := limitedSystem(t, memory.Open(nil), dispatcher.PrincipalLimits{BytesPerHour: 1 << 20})
		ada := sys.callerAs("ada")
		id := harp.JobID(harp.NewID())
		call := func() *harp.Batch {
			return must[*harp.Batch](t)(ada.Target("web01").Call(t.Context(), "p", harp.Args{"text": strings.Repeat("x", 100<<10)}, id,
				harp.WhenUnfit(harp.SkipHost), harp.OfflineWait(harp.NoLimit)))
		}
		call()
		once := usedBy(t, ada, "limits.per_principal.bytes_per_hour")
		for range 3 {
			if again := call(); !again.Existed() {
				t.Fatal("it is another batch")
			}
		}
		if used := usedBy(t, ada, "limits.per_principal.bytes_per_hour"); used != once || used < 100<<10 {
			t.Errorf("it counts as %d bytes, after the first time as %d", used, once)
		}
	})
}
