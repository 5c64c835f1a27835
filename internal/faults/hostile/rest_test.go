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

// watchMemory samples the memory of all until it is stopped.
func (s *stage) watchMemory() (stop func() map[*victim]int64) {
	most := map[*victim]int64{}
	quit := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, v := range s.victims {
				if now, err := v.process.Memory(); err == nil {
					most[v] = max(most[v], now)
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
// the question itself.
func (s *stage) awaitBudgets(t *testing.T) {
	t.Helper()
	const most = 256 << 10
	deadline := time.Now().Add(patience)
	for {
		info, err := s.caller.Ping(t.Context())
		must(t, err)
		var held []string
		for _, b := range info.Bounds {
			if strings.HasSuffix(b.Name, " of all peers") && b.Used > most {
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

// countLines is how many lines a process has logged.
func countLines(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return bytes.Count(data, []byte("\n"))
}
