package transport

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestALongBodyWaitsForTheOneBeforeIt: a body that waits as one of its exchange comes before it is read as soon as that has
// its room, whatever else happens in the session, and no sooner.
func TestALongBodyWaitsForTheOneBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bodies
		b.init(&Session{})
		x := &Exchange{session: b.session}
		first, second := &lateBody{exchange: x, size: LongBody}, &lateBody{exchange: x, size: LongBody}
		x.lates = []*lateBody{first, second}
		var read atomic.Pointer[lateBody]
		go func() { read.Store(b.nextLate(&bodyReceiver{announced: []*lateBody{second}})) }()
		synctest.Wait()
		if read.Load() != nil {
			t.Error("it is read before the one before it")
		}
		if b.nextLate(&bodyReceiver{announced: []*lateBody{first}}) != first {
			t.Error("the first is not read")
		}
		synctest.Wait()
		if read.Load() != nil {
			t.Error("it may have the room that the one before it waits for")
		}
		b.notePaid(first)
		synctest.Wait()
		if read.Load() != second {
			t.Error("it waits though the one before it has its room")
			b.mu.Lock()
			b.closed = true
			b.mu.Unlock()
			b.room.Broadcast()
		}
	})
}

// TestLongBodiesComeInTheirOrder: a body waits until those have come that are on their way, and so do shorter ones behind it, for which
// there is room. One that waits for another of its exchange is in nobody's way.
func TestLongBodiesComeInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bodies
		b.init(&Session{})
		b.coming, b.untaken = maxComing/2, maxBodies-maxComing // of those before it
		blocked := &lateBody{exchange: &Exchange{session: b.session, lates: []*lateBody{nil}}, size: LongBody}
		line := []*lateBody{blocked}
		for _, size := range []int{maxComing + 1, LongBody, LongBody} {
			x := &Exchange{session: b.session}
			late := &lateBody{exchange: x, size: size}
			x.lates = []*lateBody{late}
			line = append(line, late)
		}
		var mu sync.Mutex
		var read []*lateBody
		expect := func(want ...*lateBody) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.SortFunc(read, func(a, b *lateBody) int { return slices.Index(line, a) - slices.Index(line, b) })
			if !slices.Equal(read, want) {
				t.Errorf("%d are read, want %d", len(read), len(want))
			}
		}
		for _, late := range line {
			go func() {
				late := b.nextLate(&bodyReceiver{announced: []*lateBody{late}})
				mu.Lock()
				defer mu.Unlock()
				read = append(read, late)
			}()
			synctest.Wait()
		}
		expect()
		b.noteCome(&lateBody{size: maxComing / 2})
		expect(line[1])
		b.noteCome(line[1])
		expect(line[1]) // too much was not taken
		b.mu.Lock()
		b.untaken = 0
		b.room.Broadcast()
		b.mu.Unlock()
		expect(line[1], line[2], line[3])
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.room.Broadcast()
	})
}
