package transport

import (
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
