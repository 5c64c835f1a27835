package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/outbound"
)

const (
	webhookTime    = 10 * time.Second // for one try, with all that it takes
	webhookConns   = 4                // to one URL at a time
	webhookSecrets = 2                // one, or the one before and its successor
)

// WebhookConfig says how webhooks are sent.
type WebhookConfig struct {
	Secrets  string         // the folder of the files that webhooks name: each holds one secret, whsec_ and 24 to 64 bytes as base64. They are read at each try
	Networks []netip.Prefix // that webhooks may reach beside the public Internet, and by http too: 10.1.0.0/16. None: no address of the dispatcher's own networks
	CAFiles  []string       // certificates of authorities as PEM, which are trusted beside the system's
}

// Webhooks is a [Sender] that posts messages to URLs, signed as https://www.standardwebhooks.com has it. A message is the
// JSON object {"type", "timestamp", "data"}. It is taken if the answer is 2xx and comes within 10 seconds; redirects are not
// followed. Proxies of the environment are not used, since only who connects itself can tell which address it reaches.
type Webhooks struct {
	secrets   string
	transport *outbound.Transport
	slots     urlSlots
}

var _ Sender = (*Webhooks)(nil)

// NewWebhooks returns a Sender of webhooks. Errors: harp.ErrInvalid for a network that is none; those of reading CAFiles.
func NewWebhooks(config WebhookConfig) (*Webhooks, error) {
	transport, err := outbound.New(outbound.Config{Networks: config.Networks, CAFiles: config.CAFiles, Within: webhookTime})
	if err != nil {
		return nil, err
	}
	return &Webhooks{secrets: config.Secrets, transport: transport}, nil
}

// Accepts reports whether r is a webhook.
func (w *Webhooks) Accepts(r harp.Receiver) bool { return r.Webhook != nil }

// Check returns harp.ErrInvalid for a URL that is not https with a host, has a user, a fragment or more than 2,048 bytes,
// or names an address that may not be reached (to.webhook.url), and for secrets that cannot be read
// (to.webhook.secrets). A URL may be http if webhooks may reach networks of the dispatcher's own; its host must be in one of them.
func (w *Webhooks) Check(r harp.Receiver) error {
	if r.Webhook == nil {
		return &harp.FieldError{Field: "to.webhook", Message: "is needed"}
	}
	if _, err := w.transport.ParseURL(r.Webhook.URL); err != nil {
		return &harp.FieldError{Field: "to.webhook.url", Message: err.Error()}
	}
	if _, err := w.readSecrets(r.Webhook.Secrets); err != nil {
		return &harp.FieldError{Field: "to.webhook.secrets", Message: err.Error()}
	}
	return nil
}

// Send posts m once, and waits for the answer for at most 10 seconds. Errors: *Error; ctx's.
func (w *Webhooks) Send(ctx context.Context, r harp.Receiver, m Message) error {
	request, err := w.request(r, m, time.Now())
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, webhookTime)
	defer cancel()
	release := w.slots.take(within, r.Webhook.URL)
	defer release()
	response, err := w.transport.RoundTrip(request.WithContext(within)) // which follows nothing
	if err == nil {
		defer response.Body.Close()
		return readAnswer(response, time.Now())
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return &Error{Answer: fmt.Sprintf("no answer within %v", webhookTime)}
	case errors.Is(err, outbound.ErrNetwork):
		return &Error{Answer: "its name stands for an address that " + outbound.ErrNetwork.Error()} // which address is nobody's matter
	default:
		return &Error{Answer: oneLine(err.Error())}
	}
}

// request returns m as it is posted at a time. Errors: *Error.
func (w *Webhooks) request(r harp.Receiver, m Message, now time.Time) (*http.Request, error) {
	if r.Webhook == nil {
		return nil, &Error{Answer: "the receiver is no webhook", Final: true}
	}
	body, err := json.Marshal(struct {
		Type      string          `json:"type"`
		Timestamp time.Time       `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{m.Type, m.Time.UTC(), m.Data})
	if err != nil {
		return nil, &Error{Answer: oneLine("not written as JSON: " + err.Error()), Final: true}
	}
	u, err := w.transport.ParseURL(r.Webhook.URL)
	if err != nil {
		return nil, &Error{Answer: "its URL " + err.Error()} // of a stored one: the dispatcher's configuration is another now
	}
	secrets, err := w.readSecrets(r.Webhook.Secrets)
	if err != nil {
		return nil, &Error{Answer: "a secret " + err.Error()}
	}
	request, err := http.NewRequest(http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Answer: "its URL is none"} // not err, which tells the URL
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "harp")
	sign(request.Header, secrets, m.HeaderID(), now, body)
	return request, nil
}
