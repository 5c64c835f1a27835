package mail

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/harpcaller/harp/notify"
)

// maxServed is how many messages are remembered that some of their receivers have and others do not.
const maxServed = 1000

// served remembers which receivers of a message have it, or have been refused it for good, as long as others are tried again.
type served struct {
	mu       sync.Mutex
	messages map[string][]refusal // by id; those served are refusals without an answer
}

// refusal is what a server said of one receiver.
type refusal struct {
	to     string
	answer string
	final  bool // 5xx
}

// without returns those of to who are still to be served.
func (s *served) without(id string, to []string) (waiting []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, address := range to {
		if !slices.ContainsFunc(s.messages[id], func(r refusal) bool { return r.to == address }) {
			waiting = append(waiting, address)
		}
	}
	return waiting
}

// settle takes in how a try ended for those who waited, all but the refused of whom were served, and returns what
// that means for the message: an error that is not final as long as somebody is tried again.
func (s *served) settle(id string, waiting []string, refused []refusal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := s.messages[id]
	var again []refusal
	for _, address := range waiting {
		i := slices.IndexFunc(refused, func(r refusal) bool { return r.to == address })
		switch {
		case i < 0:
			settled = append(settled, refusal{to: address})
		case refused[i].final:
			settled = append(settled, refused[i])
		default:
			again = append(again, refused[i])
		}
	}
	told := slices.Concat(again, settled)
	told = slices.DeleteFunc(told, func(r refusal) bool { return r.answer == "" })
	if len(again) > 0 && len(settled) > 0 {
		s.remember(id, settled)
	} else {
		delete(s.messages, id)
	}
	if len(told) == 0 {
		return nil
	}
	var lines []string
	for _, r := range told {
		lines = append(lines, fmt.Sprintf("%s: %s", r.to, r.answer))
	}
	all := len(settled) + len(again)
	return &notify.Error{
		Answer: oneLine(fmt.Sprintf("sent to %d of %d; %s", all-len(told), all, strings.Join(lines, "; "))),
		Final:  len(again) == 0,
	}
}

// remember keeps who has a message. If there is no room, another message is forgotten.
func (s *served) remember(id string, settled []refusal) {
	if s.messages == nil {
		s.messages = map[string][]refusal{}
	}
	if _, known := s.messages[id]; !known && len(s.messages) >= maxServed {
		for other := range s.messages {
			delete(s.messages, other)
			break
		}
	}
	s.messages[id] = settled
}
