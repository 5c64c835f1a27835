package notify_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/outbound/outboundtest"
	"github.com/harpcaller/harp/notify"
)

// TestWebhookCheck: what is wrong with a receiver is told before anything is stored, with its field.
func TestWebhookCheck(t *testing.T) {
	closed, _, _ := newWebhooks(t, notify.WebhookConfig{})
	open, _, _ := newWebhooks(t, notify.WebhookConfig{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10")}})
	const url, network = "to.webhook.url", "is in no network that the dispatcher's configuration allows to be reached"
	for _, c := range []struct {
		w     *notify.Webhooks
		url   string
		field string // "": it is right
		what  string
	}{
		{closed, "https://example.com", "", ""},
		{closed, "https://example.com:8443/a?b=c", "", ""},
		{closed, "https://93.184.216.34/", "", ""},
		{closed, "https://[2606:2800:220::1]:443/", "", ""},
		{closed, "https://example.com/" + strings.Repeat("a", 2048-20), "", ""},
		{closed, "https://example.com/" + strings.Repeat("a", 2048-19), url, "takes 2049 bytes, at most 2048"},
		{closed, "", url, "must begin with https://"},
		{closed, "example.com", url, "must begin with https://"},
		{closed, "ftp://example.com", url, "must begin with https://"},
		{closed, "http://example.com", url, "must begin with https://"},
		{closed, "HTTPS://example.com", "", ""},
		{closed, "https:example.com", url, "has no host"},
		{closed, "https://", url, "has no host"},
		{closed, "https://:443/", url, "has no host"},
		{closed, "https://example.com:0/", url, "has no port from 1 to 65535"},
		{closed, "https://example.com:65536/", url, "has no port from 1 to 65535"},
		{closed, "https://ana:secret@example.com/", url, "must not hold a user or password"},
		{closed, "https://ana@example.com/", url, "must not hold a user or password"},
		{closed, "https://example.com/#a", url, "must not hold a fragment: it is sent to nobody"},
		{closed, "https://example.com/#", url, "must not hold a fragment: it is sent to nobody"},
		{closed, "https://example.com/\r\nHost: a", url, "is no URL"},
		{closed, "https://exa mple.com/", url, "is no URL"},
		{closed, "https://127.0.0.1/", url, network},
		{closed, "https://[::1]/", url, network},
		{closed, "https://[::ffff:127.0.0.1]/", url, network},
		{closed, "https://[fe80::1%25eth0]/", url, network},
		{closed, "https://169.254.169.254/latest", url, network},
		{closed, "https://LocalHost./", url, network},
		{closed, "https://a.localhost/", url, network},
		{open, "https://10.1.255.1/", "", ""},
		{open, "https://[::ffff:10.1.0.1]/", "", ""},
		{open, "https://[fd12::1]/", "", ""},
		{open, "https://[fe80::1%25eth0]/", "", ""},
		{open, "https://10.2.0.1/", url, network},
		{open, "https://93.184.216.34/", "", ""},
		{open, "http://10.1.0.1/", "", ""},
		{open, "http://example.com/", "", ""}, // if it stands for an address in these networks
		{open, "http://93.184.216.34/", url, network},
		{open, "http://10.2.0.1/", url, network},
	} {
		err := c.w.Check(receiver(c.url))
		var field *harp.FieldError
		switch {
		case c.field == "":
			if err != nil {
				t.Errorf("%q: %v", c.url, err)
			}
		case !errors.As(err, &field) || field.Field != c.field || field.Message != c.what || !errors.Is(err, harp.ErrInvalid):
			t.Errorf("%q: %v, want %s", c.url, err, c.what)
		}
	}
	if closed.Accepts(harp.Receiver{Mail: &harp.Mail{}}) || !closed.Accepts(receiver("")) || closed.Check(harp.Receiver{}) == nil {
		t.Error("what is no webhook is accepted")
	}
	for _, prefix := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if _, err := notify.NewWebhooks(notify.WebhookConfig{Networks: []netip.Prefix{prefix}}); !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("the network %v: %v", prefix, err)
		}
	}
}

// TestWebhookResolves: addresses are looked at when names have been resolved. One that is not allowed gets not one byte.
func TestWebhookResolves(t *testing.T) {
	asked := make(chan struct{}, 10)
	url, config := newReceiver(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer plain.Close()
	_, plainPort, _ := net.SplitHostPort(plain.Listener.Addr().String())
	const refused = "its name stands for an address that is in no network that the dispatcher's configuration allows to be reached"

	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct {
		url      string
		networks []netip.Prefix
		allowed  bool
	}{
		{"https://example.com:" + port, nil, false},
		{"https://example.com:" + port, elsewhere, false},
		{"https://example.com:" + port, loopback, true}, // for which the server has a certificate
		{"http://example.com:" + plainPort, elsewhere, false},
		{"http://example.com:" + plainPort, loopback, true},
	} {
		config.Networks = c.networks
		w, _, _ := newWebhooks(t, config)
		w.SetResolver(outboundtest.Resolver(t, [4]byte{127, 0, 0, 1}))
		if err := w.Check(receiver(c.url)); err != nil {
			t.Fatal(err)
		}
		err := w.Send(t.Context(), receiver(c.url), message())
		if c.allowed {
			if err != nil {
				t.Errorf("%s, allowed %v: %v", c.url, c.networks, err)
				continue
			}
			<-asked
			continue
		}
		if got := failed(t, err); got.Answer != refused || got.Final || got.Gone { // the name may stand for another address tomorrow
			t.Errorf("%s, allowed %v: %+v", c.url, c.networks, got)
		}
		if len(asked) > 0 {
			t.Errorf("%s, allowed %v: the receiver was asked", c.url, c.networks)
		}
	}
}

// TestWebhookPlain: by http, nothing leaves the networks that are allowed.
func TestWebhookPlain(t *testing.T) {
	w, _, _ := newWebhooks(t, notify.WebhookConfig{Networks: loopback})
	w.SetResolver(outboundtest.Resolver(t, [4]byte{93, 184, 216, 34}))
	if got := failed(t, w.Send(t.Context(), receiver("http://example.com/"), message())); !strings.HasPrefix(got.Answer, "its name stands for an address") {
		t.Errorf("%+v", got)
	}
}

// TestWebhookConfigured: a stored receiver that the configuration allows no longer is tried again, as it may be allowed again.
func TestWebhookConfigured(t *testing.T) {
	w, _, _ := newWebhooks(t, notify.WebhookConfig{})
	for _, url := range []string{"http://10.1.0.1/secret", "https://10.1.0.1/secret"} {
		if got := failed(t, w.Send(t.Context(), receiver(url), message())); got.Final || strings.Contains(got.Answer, "secret") {
			t.Errorf("%+v", got)
		}
	}
}

// TestWebhookNoProxy: what the environment says of proxies counts for nothing.
func TestWebhookNoProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	asked := make(chan struct{}, 1)
	url, config := newReceiver(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	w, _, _ := newWebhooks(t, config)
	w.SetResolver(outboundtest.Resolver(t, [4]byte{127, 0, 0, 1}))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
	if err := w.Send(t.Context(), receiver("https://example.com:"+port), message()); err != nil {
		t.Fatal(err)
	}
	<-asked
}
