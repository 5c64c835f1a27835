package notify

import (
	"context"
	"sync"
)

// urlSlots bounds how many messages are sent to a URL at a time. Others of its host are not counted: behind one host there may be
// many receivers, and one that does not answer keeps nobody else waiting.
type urlSlots struct {
	mu    sync.Mutex
	byURL map[string]*urlSlot // those that are in use or waited for
}

type urlSlot struct {
	users  int           // guarded by urlSlots.mu
	tokens chan struct{} // one for each message that is being sent
}

// take waits for a slot until ctx ends, and returns what gives it back.
func (s *urlSlots) take(ctx context.Context, url string) (release func()) {
	slot := s.enter(url)
	select {
	case slot.tokens <- struct{}{}:
		return func() { <-slot.tokens; s.leave(url, slot) }
	case <-ctx.Done(): // nothing is sent with it
		return func() { s.leave(url, slot) }
	}
}

func (s *urlSlots) enter(url string) *urlSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.byURL[url]
	if slot == nil {
		slot = &urlSlot{tokens: make(chan struct{}, webhookConns)}
		if s.byURL == nil {
			s.byURL = map[string]*urlSlot{}
		}
		s.byURL[url] = slot
	}
	slot.users++
	return slot
}

func (s *urlSlots) leave(url string, slot *urlSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot.users--; slot.users == 0 {
		delete(s.byURL, url)
	}
}
