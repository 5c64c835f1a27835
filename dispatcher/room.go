package dispatcher

import (
	"context"

	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

const (
	// answerPrice is what is reserved for an answer of which nobody knows before how long it
	// will be: what it is made of, and itself. When it has been made, its length is what is held.
	answerPrice = 2 * wire.MaxPage
	// cheapAnswer is how long an answer may be for which nothing is reserved: the exchange has
	// paid for it.
	cheapAnswer = 4 << 10
)

// answerRoom is the memory that the answer to a caller's request may take. It is reserved
// before what it is made of is read, and after what it may wait for has happened: so callers
// that read no answers cannot let more of them be made, and those that wait hold nothing.
type answerRoom struct {
	x        *transport.Exchange
	reserved int
}

type answerRoomKey struct{}

// withAnswerOf returns a context for what is done to answer x.
func withAnswerOf(ctx context.Context, x *transport.Exchange) context.Context {
	return context.WithValue(ctx, answerRoomKey{}, &answerRoom{x: x})
}

// reserveAnswer waits until an answer of n bytes may be made; 0 gives back what was reserved. A
// request that does not come over the network does not wait. The error is ctx's, or that nobody
// waits for the answer any more.
func reserveAnswer(ctx context.Context, n int) error {
	room, ok := ctx.Value(answerRoomKey{}).(*answerRoom)
	if !ok || room.reserved == n {
		return nil
	}
	err := room.x.Reserve(ctx, n)
	if err == nil {
		room.reserved = n
	}
	return err
}

// keepReserved gives back what an answer of n bytes does not need of what was reserved.
func keepReserved(ctx context.Context, n int) {
	if room, ok := ctx.Value(answerRoomKey{}).(*answerRoom); ok && n < room.reserved {
		_ = reserveAnswer(ctx, n) // to reserve less does not wait, and fails only when it is over
	}
}

// reserveAnswer is the function of that name for a request whose ctx does not end with the
// service.
func (s *service) reserveAnswer(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.done, func() { cancel(s.closed()) })()
	return reserveAnswer(ctx, n)
}

// priceOf is what is reserved for the answer to a request before it is looked at. Those that
// may wait reserve it themselves when they have waited, and those that are not here have a
// short answer.
func priceOf(t transport.Type) int {
	switch t {
	case wire.TypeStatus, wire.TypeRequest, wire.TypeJobs, wire.TypeHosts, wire.TypeHostProcs, wire.TypeQueues, wire.TypeExplain,
		wire.TypePreview, wire.TypeGroups, wire.TypeBatches, wire.TypeSchedules, wire.TypeLedger,
		wire.TypeWindows, wire.TypeWindowSpans, wire.TypeJudgeStart, wire.TypeRetentionRules, wire.TypeNotifications, wire.TypeDrift:
		return answerPrice
	case wire.TypeBackup:
		return 2 * wire.MaxChunk // a chunk, and its frame
	}
	return 0
}
