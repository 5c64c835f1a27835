//go:build linux && !race

package hostile

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFewDescriptors: somebody without an identity opens more connections that say nothing than the process may have files, again
// and again. Whoever has an identity is let in, and there are files for the store.
func TestFewDescriptors(t *testing.T) {
	s := newStage(t)
	for _, to := range []role{dispatcher, agent} {
		t.Run(string(to), func(t *testing.T) {
			v := s.victims[0]
			if to == agent {
				v = s.victims[2]
			}
			open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(v.process.PID()), "fd"))
			must(t, err)
			limit := unix.Rlimit{Cur: uint64(len(open)) + 600, Max: uint64(len(open)) + 600}
			must(t, unix.Prlimit(v.process.PID(), unix.RLIMIT_NOFILE, &limit, nil))
			ctx, cancel := context.WithCancel(t.Context())
			teller := &teller{scene: &s.scene, ctx: ctx, as: nobody, to: to, source: &s.source}
			var silent, first sync.WaitGroup
			defer silent.Wait()
			defer cancel()
			for range 900 {
				first.Add(1)
				silent.Go(func() {
					told := sync.OnceFunc(first.Done)
					defer told()
					for ctx.Err() == nil {
						conn, err := teller.dial()
						told()
						if err != nil {
							continue
						}
						_, _ = io.Copy(io.Discard, conn)
						_ = conn.Close()
					}
				})
			}
			first.Wait()
			for range 5 {
				begun := time.Now()
				must(t, s.dialHonestly(t.Context(), to))
				t.Log("dialled in", time.Since(begun))
				now, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(v.process.PID()), "fd"))
				must(t, err)
				if left := int(limit.Cur) - len(now); left < 64 {
					t.Errorf("%d files are left", left)
				}
			}
			_, err = s.callHonestly(t.Context(), to)
			must(t, err)
			s.checkAlive(t, v)
		})
	}
}
