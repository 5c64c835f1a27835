package transport_test

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/harpcaller/harp/transport"
)

// FuzzIdentity reads what may be an identity: there is one way to write each, and nothing in a name that a terminal or a path would take for
// more than that.
func FuzzIdentity(f *testing.F) {
	for _, text := range []string{
		"harp://fleet/agent/web01", "harp://f.example/caller/ana@example.org", "harp://fleet/agent/%C3%A9", "HARP://fleet/agent/x", "harp://fleet/agent/..",
		"harp://fleet/agent/a%2Fb", "harp://fleet/agent/a%00", "harp://fleet:1/agent/x", "harp://u@fleet/agent/x?q#f", "harp:fleet/agent/x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		id, err := transport.ParseIdentity(u)
		if err != nil {
			if !errors.Is(err, transport.ErrIdentity) {
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := transport.ParseIdentity(id.URI()); err != nil || again != id || id.Validate() != nil {
			t.Errorf("%+v is %+v when it is read again: %v", id, again, err)
		}
		if u.String() != id.String() {
			t.Errorf("%q is taken for %q", u, id)
		}
		strange := func(r rune) bool { return !unicode.IsPrint(r) || r == '/' || r == '\\' || r == '%' }
		if len(id.Name) > 255 || strings.ContainsFunc(id.Name, strange) || !norm.NFC.IsNormalString(id.Name) || id.Name == "." || id.Name == ".." {
			t.Errorf("name %q is taken", id.Name)
		}
	})
}

// FuzzCertificate looks at what may be a certificate.
func FuzzCertificate(f *testing.F) {
	for _, role := range []transport.Role{transport.RoleAgent, transport.RoleCaller, "other"} {
		f.Add(tlsOf(f, transport.Identity{Fleet: fleet, Role: role, Name: "web01"}).Certificates[0].Certificate[0])
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		id, err := transport.IdentityOf(cert)
		if err == nil && id.Validate() != nil || err != nil && !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("%+v, %v", id, err)
		}
		if err := transport.CheckChain([]*x509.Certificate{cert}); err == nil && len(der) > 16<<10 {
			t.Errorf("%d bytes are taken", len(der))
		}
	})
}
