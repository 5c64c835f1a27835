package transport_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/harpcaller/harp/transport"
)

func TestIdentityURI(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, c := range []struct {
		id  transport.Identity
		uri string
	}{
		{transport.Identity{Fleet: "prod", Role: "agent", Name: "web01"}, "harp://prod/agent/web01"},
		{transport.Identity{Fleet: "a.b-c.example", Role: "dispatcher", Name: "a.b"}, "harp://a.b-c.example/dispatcher/a.b"},
		{transport.Identity{Fleet: "prod", Role: "caller", Name: "Jürgen-Ö"}, "harp://prod/caller/J%C3%BCrgen-%C3%96"},
		{transport.Identity{Fleet: "prod", Role: "agent", Name: "서버１"}, "harp://prod/agent/%EC%84%9C%EB%B2%84%EF%BC%91"},
		{transport.Identity{Fleet: "prod", Role: "caller", Name: "a-._~!$&'()*+,;=:@b"}, "harp://prod/caller/a-._~%21$&%27%28%29%2A+%2C%3B=:@b"},
		{transport.Identity{Fleet: "prod", Role: "agent", Name: "a:b@c"}, "harp://prod/agent/a:b@c"},
		{transport.Identity{Fleet: "prod", Role: "agent", Name: long}, "harp://prod/agent/" + long},
	} {
		if got := c.id.String(); got != c.uri {
			t.Errorf("%+v is %s, not %s", c.id, got, c.uri)
		}
		u, err := url.Parse(c.uri)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := transport.ParseIdentity(u); err != nil || got != c.id {
			t.Errorf("%s is %+v, %v", c.uri, got, err)
		}
		// As it comes back from a certificate.
		config := tlsOf(t, transport.Identity{Fleet: fleet, Role: c.id.Role, Name: c.id.Name})
		got, err := transport.IdentityOf(config.Certificates[0].Leaf)
		if err != nil || got.Name != c.id.Name || got.Role != c.id.Role {
			t.Errorf("the certificate of %s has %+v, %v", c.uri, got, err)
		}
	}
}

func TestIdentityRefused(t *testing.T) {
	for _, uri := range []string{
		"",
		"http://prod/agent/web01",
		"harp:prod/agent/web01",
		"harp:///agent/web01",
		"harp://prod",
		"harp://prod/agent",
		"harp://prod/agent/",
		"harp://prod//web01",
		"harp://prod/agent/web01/more",
		"harp://prod/agent/web01?x=y",
		"harp://prod/agent/web01?",
		"harp://prod/agent/web01#x",
		"harp://user@prod/agent/web01",
		"harp://prod:7440/agent/web01",
		"harp://Prod/agent/web01",
		"harp://prod./agent/web01",
		"harp://pr_od/agent/web01",
		"harp://prod/Agent/web01",
		"harp://prod/ag%65nt/web01",
		"harp://prod/agent/web%301",
		"harp://prod/agent/a%2fb",
		"harp://prod/agent/%FF",
		"harp://prod/agent/.",
		"harp://prod/agent/..",
		"harp://prod/agent/..%2Fetc",
		"harp://prod/agent/a%2Fb",
		"harp://prod/agent/a%20b",
		"harp://prod/agent/a%00",
		"harp://prod/agent/a%0A",
		"harp://prod/agent/%1B%5B2J",
		"harp://prod/agent/%E2%80%AEa",   // to the left from here
		"harp://prod/agent/a%E2%80%8Bb",  // a space without width
		"harp://prod/agent/a%E2%80%A8b",  // a separator of lines
		"harp://prod/agent/%EF%BB%BFa",   // a byte order mark
		"harp://prod/agent/u%CC%88",      // not NFC, which is one letter
		"harp://prod/agent/%F3%A0%81%81", // a tag
		"harp://prod/agent/%EE%80%80",    // of private use
		"harp://prod/agent/a%3Fb",
		"harp://prod/agent/a%25b",
		"HARP://prod/agent/web01%20",
		"harp://prod/agent/" + strings.Repeat("n", 256),
		"harp://" + strings.Repeat("p", 64) + "/agent/web01",
	} {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := transport.ParseIdentity(u); !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("%s is %+v, %v", uri, id, err)
		}
	}
}
