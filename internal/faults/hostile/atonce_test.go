//go:build linux && !race

package hostile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/faults"
)

const (
	atOnceTellers = 32 // how many lies are told at a time

	// rounds is how often in all the lies stop, so that it can be looked at what is left of them. In the first
	// one caches fill; what there is more after the last than after the first has grown.
	rounds = 6

	// restWithin is how long after a lie everything is to be as before.
	restWithin = 10 * time.Second

	// namesAtOnce is how many names liars have when all lie: as many as machines were stolen. Names without
	// end would need an authority that lies.
	namesAtOnce = 4096

	// mostLinesMinute is how many lines a process may log in a minute because of all lies.
	mostLinesMinute = 4096
)

// rest is what a process holds when no lies are told.
type rest struct {
	faults.Held
	memory, disk int64
	lines        int
}

// playAtOnce tells lies of every kind at once, again and again, beside honest calls. To another fleet beside it
// none are told: what calls take there in the same minutes is what the machine has to give.
func playAtOnce(t *testing.T) {
	lasts, err := time.ParseDuration(atOnce)
	must(t, err)
	nameCount.Store(namesAtOnce)
	s, quiet := newStage(t), newStage(t)
	deck := &deck{told: map[string]int{}, now: map[string]int{}, why: map[string]error{}}
	var first, last map[*victim]rest
	var leftFirst stored
	for round := range rounds {
		s.playRound(t, quiet, deck, lasts/rounds)
		last = s.lookAtRest(t)
		left := s.prune(t)
		if round == 0 {
			first, leftFirst = last, left
		}
		if round == rounds-1 {
			left.checkGrowth(t, leftFirst)
		}
		if t.Failed() {
			return
		}
	}
	for _, v := range s.victims {
		was, is := first[v], last[v]
		if is.Goroutines > was.Goroutines+slackGoroutines || is.Files > was.Files+slackFiles || is.Heap > was.Heap+v.slack {
			t.Errorf("%s grows: %+v after the first round, %+v after the last", v.name, was, is)
		}
	}
	for _, l := range lies {
		if deck.told[l.name] == 0 {
			t.Logf("could not be told among the others: %s: %v", l.name, deck.why[l.name])
		}
	}
	must(t, s.fleet.Stop())
}

// deck deals lies so that each is told as often as any other.
type deck struct {
	mu     sync.Mutex // guards what follows
	left   []lie
	told   map[string]int
	now    map[string]int // those that are being told
	failed int
	why    map[string]error // the last of each that could not be told
}

func (d *deck) deal() lie {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		for _, i := range rand.Perm(len(lies)) {
			d.left = append(d.left, lies[i])
		}
	}
	l := d.left[0]
	d.left = d.left[1:]
	d.now[l.name]++
	return l
}

// toldNow are the lies that are being told.
func (d *deck) toldNow() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(d.now)), "; ")
}

// note counts a lie that was told, or could not be: lies get in each other's way.
func (d *deck) note(l lie, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now[l.name]--; d.now[l.name] == 0 {
		delete(d.now, l.name)
	}
	if err != nil {
		d.failed++
		d.why[l.name] = err
		return
	}
	d.told[l.name]++
}

func (d *deck) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, told := range d.told {
		n += told
	}
	return fmt.Sprintf("%d lies of %d kinds were told, %d could not be", n, len(d.told), d.failed)
}

// playRound tells lies for a while, and looks each minute at what they do.
func (s *stage) playRound(t *testing.T, quiet *stage, d *deck, lasts time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel()
	for range atOnceTellers {
		telling.Go(func() {
			for ctx.Err() == nil {
				l := d.deal()
				d.note(l, s.tellShortly(ctx, l))
			}
		})
	}
	for ctx.Err() == nil && !t.Failed() {
		s.watchMinute(ctx, t, quiet, d)
		t.Log(d)
	}
}

// watchMinute makes honest calls for a minute, and looks at what the processes take meanwhile.
func (s *stage) watchMinute(ctx context.Context, t *testing.T, quiet *stage, d *deck) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, v := range s.victims {
		v.lines = countLines(t, v.log)
	}
	watch := s.watchMemory(d.toldNow)
	begun := time.Now()
	times := map[*stage]map[role]faults.Times{s: {}, quiet: {}}
	for ctx.Err() == nil {
		for at, took := range times {
			for _, to := range []role{dispatcher, agent} {
				d, err := at.callHonestly(t.Context(), to)
				if err != nil {
					t.Errorf("an honest call to the %s: %v", to, err)
					cancel()
				}
				took[to] = append(took[to], d)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // they are not a flood
		}
	}
	most := watch()
	for _, to := range []role{dispatcher, agent} {
		t.Logf("honest calls to the %s %v; in the quiet fleet %v", to, times[s][to], times[quiet][to])
	}
	for _, v := range s.victims {
		s.checkAlive(t, v)
		grown, lines := most[v]-v.memory, countLines(t, v.log)-v.lines
		if grown > v.room {
			t.Errorf("%s took %d MiB more than at rest, at most %d", v.name, grown/mebi, v.room/mebi)
		}
		if lines > mostLinesMinute*int(1+time.Since(begun)/time.Minute) {
			t.Errorf("%s logged %d lines in %v", v.name, lines, time.Since(begun))
		}
		t.Logf("%s: %+d MiB at most, %d lines, %d MiB on disk", v.name, grown/mebi, lines, diskUsed(v.dir)/mebi)
	}
}

// lookAtRest looks at what is left when no lies are told any more.
func (s *stage) lookAtRest(t *testing.T) map[*victim]rest {
	t.Helper()
	_, err := s.caller.Queues().Cancel(t.Context(), harp.Args{"name": lineOfLies})
	if err != nil && !errors.Is(err, harp.ErrNotFound) {
		t.Errorf("the calls that wait are not cancelled: %v", err)
	}
	s.clearDocuments(t)
	begun := time.Now()
	all := map[*victim]rest{}
	for _, v := range s.victims {
		s.awaitRest(t, v)
		t.Logf("%s is at rest after %v", v.name, time.Since(begun).Round(time.Millisecond))
	}
	s.awaitBudgets(t)
	time.Sleep(time.Until(begun.Add(restWithin)))
	for _, to := range []role{dispatcher, agent} {
		var times faults.Times
		for range 200 {
			took, err := s.callHonestly(t.Context(), to)
			must(t, err)
			times = append(times, took)
		}
		t.Logf("at rest honest calls to the %s %v, before all lies %v", to, times, s.usual[to])
	}
	for _, v := range s.victims {
		memory, err := v.process.Memory()
		must(t, err)
		all[v] = rest{Held: v.askHeld(t), memory: memory, disk: diskUsed(v.dir), lines: countLines(t, v.log)}
		r := all[v]
		t.Logf("%s at rest: %d MiB of memory, of which %d of heap, %d goroutines, %d files, %d MiB on disk, %d lines so far; before all lies %d MiB, %d, %d, %d",
			v.name, r.memory/mebi, r.Heap/mebi, r.Goroutines, r.Files, r.disk/mebi, r.lines, v.memory/mebi, v.rest.Heap/mebi, v.rest.Goroutines, v.rest.Files)
		if profiles != "" {
			v.profile("rest", "")
		}
	}
	return all
}

// prune deletes what has ended, and the hosts by whose names liars came, as an operator would who keeps nothing. It returns what is left.
func (s *stage) prune(t *testing.T) stored {
	t.Helper()
	t.Logf("rows: %v", s.countRows(t))
	removed := 0
	for h, err := range s.caller.Hosts().List(t.Context(), "") {
		must(t, err)
		if h.Name == s.called || h.Online {
			continue
		}
		if _, err := s.caller.Hosts().Remove(t.Context(), h.Name); err != nil {
			t.Errorf("a host that is away cannot be removed: %v", err)
			return nil
		}
		removed++
	}
	begun := time.Now()
	n, err := s.caller.Prune(t.Context(), time.Now())
	must(t, err)
	took := time.Since(begun)
	left := s.countRows(t)
	t.Logf("%d hosts were removed, and %d jobs pruned in %v; %d MiB on disk are left; rows: %v", removed, n, took, diskUsed(s.victims[0].dir)/mebi, left)
	return left
}

// diskUsed is how many bytes of a disk the files of a directory take.
func diskUsed(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var stat syscall.Stat_t
		if err == nil && syscall.Lstat(path, &stat) == nil { // what goes away meanwhile takes nothing
			n += stat.Blocks * 512
		}
		return nil
	})
	return n
}

// tellShortly tells a lie for some seconds at most.
func (s *stage) tellShortly(ctx context.Context, l lie) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := s.tellOnce(ctx, l, func() {})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
