package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
)

// A receiver in the operator's own network is told by a signed webhook.
func ExampleWebhooks() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Webhook-Id"), string(body))
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer receiver.Close()

	secrets, err := os.MkdirTemp("", "secrets")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(secrets) }()
	if err := os.WriteFile(filepath.Join(secrets, "ops"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		log.Fatal(err)
	}

	webhooks, err := notify.NewWebhooks(notify.WebhookConfig{
		Secrets:  secrets,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // or only public addresses are reached, by https
	})
	if err != nil {
		log.Fatal(err)
	}
	to := harp.Receiver{Webhook: &harp.Webhook{URL: receiver.URL, Secrets: []string{"ops"}}}
	if err := webhooks.Check(to); err != nil {
		log.Fatal(err)
	}
	err = webhooks.Send(context.Background(), to, notify.Message{
		ID: "1f3a-nightly-17", Type: "job.failed", Time: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), Data: json.RawMessage(`{"host":"web1"}`),
	})
	var refused *notify.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Answer)
	}
	// Output:
	// 1f3a-nightly-17 {"type":"job.failed","timestamp":"2027-01-02T03:04:05Z","data":{"host":"web1"}}
	// 503 Service Unavailable: not now
}
