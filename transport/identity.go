package transport

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Role is what a peer is in its fleet, a lower-case word. Roles not named here
// may occur in certificates and are shown as they are.
type Role string

// The roles of the first release.
const (
	RoleAgent      Role = "agent"
	RoleDispatcher Role = "dispatcher"
	RoleCaller     Role = "caller"
)

// The protocols of the first release, negotiated by ALPN.
const (
	ProtocolAgent  = "harp-agent/1"  // dispatcher and agent
	ProtocolCall   = "harp-call/1"   // caller and dispatcher
	ProtocolDirect = "harp-direct/1" // caller and agent, no dispatcher between
)

// Peer is the other end of a connection, as its certificate proved it.
type Peer struct {
	Identity    Identity
	Addr        string
	Protocol    string // the negotiated protocol (ALPN)
	Fingerprint string // "sha256:" and the hex digest of the certificate's public key
}

const (
	scheme   = "harp"
	maxWord  = 63  // bytes of a fleet or a role
	maxName  = 255 // bytes of a name
	wordRune = "abcdefghijklmnopqrstuvwxyz0123456789-"
	nameRune = "-._~!$&'()*+,;=:@" // of a name, beside letters and digits: what a URI's path has
)

// Identity is who a certificate speaks for: the URI harp://FLEET/ROLE/NAME among
// its subject alternative names. Fleet is a domain name in lower case, Role a
// lower-case word, Name 1 to 255 bytes of letters and digits of any script, in Unicode's
// form NFC, and -._~!$&'()*+,;=:@ but neither "." nor "..".
type Identity struct {
	Fleet string
	Role  Role
	Name  string
}

// URI returns the identity as harp://FLEET/ROLE/NAME, the name escaped.
func (id Identity) URI() *url.URL {
	path := "/" + string(id.Role) + "/"
	return &url.URL{
		Scheme:  scheme,
		Host:    id.Fleet,
		Path:    path + id.Name,
		RawPath: path + url.PathEscape(id.Name),
	}
}

// String returns the identity's URI.
func (id Identity) String() string { return id.URI().String() }

// Validate reports whether the identity can stand in a certificate. The error is
// an [ErrIdentity].
func (id Identity) Validate() error {
	switch {
	case !isFleet(id.Fleet):
		return fmt.Errorf("%w: fleet %q", ErrIdentity, id.Fleet)
	case !isWord(string(id.Role)):
		return fmt.Errorf("%w: role %q", ErrIdentity, id.Role)
	}
	return CheckName(id.Name)
}

// ParseIdentity reads an identity from its URI. Of all ways to write a URI only
// the one [Identity.URI] returns is accepted, so that equal identities have
// equal URIs. The error is an [ErrIdentity].
func ParseIdentity(u *url.URL) (Identity, error) {
	role, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != scheme || !ok {
		return Identity{}, fmt.Errorf("%w: %q is not harp://FLEET/ROLE/NAME", ErrIdentity, u)
	}
	id := Identity{Fleet: u.Host, Role: Role(role), Name: name}
	if err := id.Validate(); err != nil {
		return Identity{}, err
	}
	if u.String() != id.String() {
		return Identity{}, fmt.Errorf("%w: %q is not written as %q", ErrIdentity, u, id)
	}
	return id, nil
}

// IdentityOf returns the identity of a certificate, which must have exactly one
// harp URI among its subject alternative names. The error is an [ErrIdentity].
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	var found *url.URL
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		if found != nil {
			return Identity{}, fmt.Errorf("%w: more than one in the certificate", ErrIdentity)
		}
		found = u
	}
	if found == nil {
		return Identity{}, fmt.Errorf("%w: none in the certificate", ErrIdentity)
	}
	id, err := ParseIdentity(found)
	if err != nil {
		return Identity{}, err
	}
	if !isWrittenIn(cert, id.String()) { // in capitals, which parsing takes for small letters
		return Identity{}, fmt.Errorf("%w: it is not written as %q", ErrIdentity, id)
	}
	return id, nil
}

// subjectAltName is the extension of certificates with the subject's other names.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// isWrittenIn reports whether a URI stands in a certificate as it is.
func isWrittenIn(cert *x509.Certificate, uri string) bool {
	return slices.ContainsFunc(cert.Extensions, func(e pkix.Extension) bool {
		return e.Id.Equal(subjectAltName) && bytes.Contains(e.Value, []byte(uri))
	})
}

// require reports whether id has the role wanted.
func (id Identity) require(want Role) error {
	if id.Role != want {
		return fmt.Errorf("%w: %s is not a %s", ErrIdentity, id, want)
	}
	return nil
}

// fingerprint returns the digest of a public key in its certificate's form.
func fingerprint(spki []byte) string {
	sum := sha256.Sum256(spki)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// isFleet reports whether s is dot-separated words.
func isFleet(s string) bool {
	if len(s) > maxWord {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label) {
			return false
		}
	}
	return true
}

// CheckName reports whether a name may be an [Identity]'s: names are shown on terminals, stand
// in file names and URIs, and are compared byte by byte. The error is an [ErrIdentity].
func CheckName(name string) error {
	if isName(name) {
		return nil
	}
	return fmt.Errorf("%w: a name must be 1 to %d bytes of letters, digits and %s, in Unicode's NFC, is %+.300q", ErrIdentity, maxName, nameRune, name)
}

func isName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > maxName || !norm.NFC.IsNormalString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !unicode.In(r, unicode.L, unicode.M, unicode.Nd) && !strings.ContainsRune(nameRune, r)
	})
}

func isWord(s string) bool {
	return s != "" && len(s) <= maxWord && strings.Trim(s, wordRune) == ""
}
