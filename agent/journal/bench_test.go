package journal

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkAcceptStart: attempts that are accepted and started, each synced.
func BenchmarkAcceptStart(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			j, err := Open(Disk(b.TempDir()), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			var next atomic.Int64
			var all sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				all.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						k := Key{fmt.Sprintf("0199f3a1-1111-7000-8000-%012d", n), 1}
						if err := j.AcceptStart(k, Accept{Fence: 1}, time.Now()); err != nil {
							b.Error(err)
							return
						}
						_ = j.Forget(k)
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkAppend: records of 100 bytes of one attempt, acknowledged as they come.
func BenchmarkAppend(b *testing.B) {
	j, err := Open(Disk(b.TempDir()), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	k := Key{"0199f3a1-1111-7000-8000-000000000000", 1}
	if err := j.AcceptStart(k, Accept{}, time.Now()); err != nil {
		b.Fatal(err)
	}
	record := make([]byte, 100)
	b.SetBytes(100)
	b.ReportAllocs()
	var before *Commit
	for n := int64(0); b.Loop(); n++ {
		c, err := j.Append(k, n, record)
		if err != nil {
			b.Fatal(err)
		}
		if n%1000 == 999 {
			_ = j.Ack(k, n)
			if before != nil && before.Wait() != nil {
				b.Fatal("not written")
			}
			before = c
		}
	}
}
