package wire

import (
	"sync"

	"github.com/harpcaller/harp/transport"
)

// Scratch is memory that a message is written into by who sends it at once.
type Scratch struct{ B []byte }

// maxScratch is the most that is kept for the next message.
const maxScratch = 16 << 10

var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// NewScratch returns an empty one, to be freed when it is not needed any more.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) } //nolint:forcetypeassert // nothing else is there

// Send sends a message, which is written into memory that is used again.
func Send[M any](x *transport.Exchange, t transport.Type, end bool, message *M) error {
	body := NewScratch()
	defer body.Free()
	body.B = Append(body.B, message)
	return x.Send(t, end, body.B)
}

// Free keeps the memory for the next who needs some.
func (s *Scratch) Free() {
	if cap(s.B) <= maxScratch {
		s.B = s.B[:0]
		scratches.Put(s)
	}
}
