//go:build linux && !race

package hostile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/faults"
)

// profiledAt are the parts of its room at which a process is asked what it holds.
var profiledAt = []float64{0.5, 0.8, 1}

// watchMemory samples the memory of all until it is stopped. told says which lies are being told.
func (s *stage) watchMemory(told func() string) (stop func() map[*victim]int64) {
	most, asked := map[*victim]int64{}, map[*victim]int{}
	quit := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, v := range s.victims {
				now, err := v.process.Memory()
				if err != nil {
					continue
				}
				most[v] = max(most[v], now)
				n := asked[v]
				if profiles != "" && n < len(profiledAt) && now-v.memory > int64(profiledAt[n]*float64(v.room)) {
					asked[v]++
					v.profile(fmt.Sprintf("%d", (now-v.memory)/mebi), told())
				}
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
	return func() map[*victim]int64 {
		close(quit)
		sampling.Wait()
		return most
	}
}

// profile has a process write what it holds, beside what is said of it.
func (v *victim) profile(when, says string) {
	path := filepath.Join(profiles, fmt.Sprintf("%s-%s-%s", strings.ReplaceAll(v.name, " ", "-"), time.Now().Format("150405"), when))
	_ = v.process.Profile(path) // it may have died, which is found elsewhere
	_ = os.WriteFile(path+".lies", []byte(says+"\n"), 0o600)
}

func (s *stage) checkAlive(t *testing.T, v *victim) {
	t.Helper()
	select {
	case <-v.process.Done():
		t.Fatalf("%s died", v.name)
	default:
	}
}

// askHeld is what a process holds, without the files of its store: these are as many as what is stored needs.
func (v *victim) askHeld(t *testing.T) faults.Held {
	t.Helper()
	held, err := v.process.AskHeld(t.Context())
	must(t, err)
	if v.store == "" {
		return held
	}
	for _, kind := range []string{"*.vlog", "*.sst", "*.mem"} {
		stored, err := filepath.Glob(filepath.Join(v.store, kind))
		must(t, err)
		held.Files -= len(stored)
	}
	return held
}

// awaitRest waits until a process holds about what it held before.
func (s *stage) awaitRest(t *testing.T, v *victim) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		now := v.askHeld(t)
		if now.Goroutines <= v.rest.Goroutines+slackGoroutines && now.Files <= v.rest.Files+slackFiles && now.Heap <= v.rest.Heap+v.slack {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s holds %d goroutines, %d files and %d MiB when all is over, and %d, %d and %d before", v.name,
				now.Goroutines, now.Files, now.Heap/mebi, v.rest.Goroutines, v.rest.Files, v.rest.Heap/mebi)
			v.rest = now // the next lie has no part in it
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// awaitBudgets waits until the dispatcher holds nothing any more that was taken of what all peers have, but for
// the question itself, and what honest sessions have for bodies ahead as long as they last.
func (s *stage) awaitBudgets(t *testing.T) {
	t.Helper()
	const most, ahead = 256 << 10, 3 * 512 << 10
	deadline := time.Now().Add(patience)
	for {
		info, err := s.caller.Ping(t.Context())
		must(t, err)
		var held []string
		for _, b := range info.Bounds {
			room := int64(most)
			if strings.HasSuffix(b.Name, "bodies ahead of all peers") {
				room = ahead
			}
			if strings.HasSuffix(b.Name, " of all peers") && b.Used > room {
				held = append(held, fmt.Sprintf("%s: %d", b.Name, b.Used))
			}
		}
		if len(held) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("when all is over the dispatcher holds %s bytes", strings.Join(held, ", "))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// showLogs shows the end of each process's log.
func showLogs(t *testing.T, f *faults.Fleet) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(f.Dir, "*.log"))
	must(t, err)
	for _, path := range logs {
		data, err := os.ReadFile(path)
		must(t, err)
		const most = 4000
		t.Logf("%s ends with:\n%s", filepath.Base(path), data[max(0, len(data)-most):])
	}
}

// countLines is how many lines a process has logged, without those that say a minute later how often something was: they are as many as
// lines that said it first, and come when other lies are told.
func countLines(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	n := 0
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte(" times=")) {
			n++
		}
	}
	return n
}
