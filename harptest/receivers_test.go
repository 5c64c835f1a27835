package harptest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
)

// receivers are what messages are sent to, by the URLs of their webhooks. How one answers is said by the test.
type receivers struct {
	mu     sync.Mutex
	answer func(ctx context.Context, url string, m notify.Message) error // nil: it is taken
	tries  int
	got    map[string][]notify.Message
	at     map[string][]time.Time
}

func (r *receivers) Accepts(to harp.Receiver) bool { return to.Webhook != nil }

func (r *receivers) Check(to harp.Receiver) error {
	if strings.HasPrefix(to.Webhook.URL, "https:") {
		return nil
	}
	return &harp.FieldError{Field: "to.webhook.url", Message: "must be https"}
}

func (r *receivers) Send(ctx context.Context, to harp.Receiver, m notify.Message) error {
	r.mu.Lock()
	answer := r.answer
	r.tries++
	r.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, to.Webhook.URL, m); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[to.Webhook.URL] = append(r.got[to.Webhook.URL], m)
	r.at[to.Webhook.URL] = append(r.at[to.Webhook.URL], time.Now())
	return nil
}

func (r *receivers) answers(with func(ctx context.Context, url string, m notify.Message) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = with
}

// subjects are those of the messages that were taken, in their order.
func (r *receivers) subjects(url string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got[url] {
		all = append(all, m.Subject)
	}
	return all
}

func (r *receivers) taken(url string) []notify.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got[url])
}

const hook = "https://receiver.example/hook"

func to(url string) harp.Receiver {
	return harp.Receiver{Webhook: &harp.Webhook{URL: url, Secrets: []string{"s"}}}
}
