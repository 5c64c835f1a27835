package transport_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/transport"
)

// allowAgents is what a dispatcher lets in.
var allowAgents = map[string]transport.Role{
	transport.ProtocolAgent: transport.RoleAgent,
	transport.ProtocolCall:  transport.RoleCaller,
}

func TestRoles(t *testing.T) {
	cases := []struct {
		name           string
		client, server transport.Identity
		protocol       string
		good           bool
	}{
		{"an agent", agentID, dispatcherID, transport.ProtocolAgent, true},
		{"a caller", callerID, dispatcherID, transport.ProtocolCall, true},
		{"a caller that speaks as an agent", callerID, dispatcherID, transport.ProtocolAgent, false},
		{"an agent that speaks as a caller", agentID, dispatcherID, transport.ProtocolCall, false},
		{"a protocol that is not spoken", callerID, dispatcherID, transport.ProtocolDirect, false},
		{"an agent where a dispatcher should be", agentID, agentID, transport.ProtocolAgent, false},
		{"an unknown role", transport.Identity{Fleet: fleet, Role: "janitor", Name: "x"}, dispatcherID, transport.ProtocolAgent, false},
	}
	for _, w := range []wiring{{name: "memory", memory: true}, {name: "tls"}} {
		for _, c := range cases {
			t.Run(w.name+"/"+c.name, func(t *testing.T) {
				cc, sc, err := w.shake(t, c.client, c.server, c.protocol, transport.RoleDispatcher, allowAgents)
				if c.good {
					if err != nil {
						t.Fatal(err)
					}
					_ = cc.Close()
					_ = sc.Close()
					return
				}
				if cc != nil || sc != nil || !errors.Is(err, transport.ErrHandshake) {
					t.Errorf("client %v, server %v, %v", cc, sc, err)
				}
			})
		}
	}
}

// Each side is told what is wrong, as far as the other says it.
func TestRoleErrors(t *testing.T) {
	for _, w := range []wiring{{name: "memory", memory: true}, {name: "tls"}} {
		t.Run(w.name, func(t *testing.T) {
			nc, ns := w.pipe(t, callerID, dispatcherID)
			served := make(chan error, 1)
			go func() {
				served <- second(transport.Server(t.Context(), ns, w.tls(t, dispatcherID), allowAgents))
			}()
			_, err := transport.Client(t.Context(), nc, w.tls(t, callerID), transport.ProtocolAgent, transport.RoleDispatcher)
			wantStage(t, <-served, transport.StageIdentity)
			if !errors.Is(err, transport.ErrHandshake) {
				t.Errorf("the client: %v", err)
			}
		})
	}
}

func wantStage(t *testing.T, err error, stage transport.Stage) {
	t.Helper()
	var he *transport.HandshakeError
	if !errors.As(err, &he) || he.Stage != stage || !errors.Is(err, transport.ErrHandshake) || he.Addr == "" {
		t.Errorf("not an error of stage %s: %v", stage, err)
	}
}

// certs makes certificates that devca does not.
type certs struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newCerts(t *testing.T) certs {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := certs{key: key, cert: &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}}
	c.cert = c.sign(t, c.cert, &key.PublicKey)
	return c
}

func (c certs) sign(t *testing.T, template *x509.Certificate, public any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, public, c.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// leaf returns a configuration with a certificate for id, changed by change.
func (c certs) leaf(t *testing.T, id transport.Identity, change func(*x509.Certificate)) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		URIs:         []*url.URL{id.URI()},
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if change != nil {
		change(template)
	}
	cert := c.sign(t, template, &key.PublicKey)
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		RootCAs:      pool,
		ClientCAs:    pool,
	}
}

func TestCertificates(t *testing.T) {
	ours, theirs := newCerts(t), newCerts(t)
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	cases := []struct {
		name   string
		change func(t *testing.T, id transport.Identity, config *tls.Config)
		stage  transport.Stage // of the side that looks at the certificate
	}{
		{"expired", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, expired).Certificates
		}, transport.StageTLS},
		{"not yet valid", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }).Certificates
		}, transport.StageTLS},
		{"of another authority", func(t *testing.T, id transport.Identity, c *tls.Config) {
			cert := theirs.leaf(t, id, nil).Certificates[0]
			// Shown though it was not asked for.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			c.Certificates = []tls.Certificate{cert}
		}, transport.StageTLS},
		{"for something else", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}
			}).Certificates
		}, transport.StageTLS},
		{"without an identity", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, func(c *x509.Certificate) { c.URIs = nil }).Certificates
		}, transport.StageIdentity},
		{"with two identities", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }).Certificates
		}, transport.StageIdentity},
		{"written in capitals", func(t *testing.T, id transport.Identity, c *tls.Config) {
			c.Certificates = ours.leaf(t, id, func(c *x509.Certificate) { c.URIs[0].Scheme = "HARP" }).Certificates
		}, transport.StageIdentity},
		{"in a long chain", func(t *testing.T, _ transport.Identity, c *tls.Config) {
			cert := &c.Certificates[0]
			cert.Certificate = append(cert.Certificate, slices.Repeat([][]byte{ours.cert.Raw}, 4)...)
		}, transport.StageTLS},
		{"in a large chain", func(t *testing.T, _ transport.Identity, c *tls.Config) {
			large := ours.leaf(t, callerID, func(c *x509.Certificate) { c.DNSNames = slices.Repeat([]string{"a.example"}, 1600) })
			cert := &c.Certificates[0]
			cert.Certificate = append(cert.Certificate, large.Certificates[0].Certificate[0])
		}, transport.StageTLS},
		{"beside a key on a large curve", func(t *testing.T, _ transport.Identity, c *tls.Config) {
			key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			addToChain(t, ours, c, &key.PublicKey)
		}, transport.StageTLS},
		{"beside a large key of RSA", func(t *testing.T, _ transport.Identity, c *tls.Config) {
			n := new(big.Int).Lsh(big.NewInt(1), 4096) // 4097 bits
			addToChain(t, ours, c, &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
		}, transport.StageTLS},
		{"none", func(_ *testing.T, _ transport.Identity, c *tls.Config) { c.Certificates = nil }, transport.StageTLS},
	}
	for _, c := range cases {
		t.Run("client/"+c.name, func(t *testing.T) {
			client, server := ours.leaf(t, agentID, nil), ours.leaf(t, dispatcherID, nil)
			c.change(t, agentID, client)
			clientErr, serverErr := handshake(t, client, server)
			wantStage(t, serverErr, c.stage)
			wantStage(t, clientErr, transport.StageTLS)
		})
		t.Run("server/"+c.name, func(t *testing.T) {
			client, server := ours.leaf(t, agentID, nil), ours.leaf(t, dispatcherID, nil)
			c.change(t, dispatcherID, server)
			clientErr, serverErr := handshake(t, client, server)
			wantStage(t, serverErr, transport.StageTLS)
			if c.name != "none" { // then the server has said nothing that could be looked at
				wantStage(t, clientErr, c.stage)
			}
		})
	}
}

// addToChain shows the certificate of a key beside one's own.
func addToChain(t *testing.T, by certs, c *tls.Config, key any) {
	t.Helper()
	cert := &c.Certificates[0]
	cert.Certificate = append(cert.Certificate, by.sign(t, &x509.Certificate{SerialNumber: big.NewInt(3)}, key).Raw)
}

// TestFleets checks that nobody talks with another fleet, though one authority signed
// both, and however this side's certificate is given.
func TestFleets(t *testing.T) {
	ours, other := newCerts(t), dispatcherID
	other.Fleet = "other.example"
	live := func(c *tls.Config) *tls.Config {
		cert := &c.Certificates[0]
		c.Certificates = nil
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		return c
	}
	for name, shown := range map[string]func(*tls.Config) *tls.Config{"fixed": func(c *tls.Config) *tls.Config { return c }, "live": live} {
		t.Run(name, func(t *testing.T) {
			clientErr, serverErr := handshake(t, shown(ours.leaf(t, agentID, nil)), shown(ours.leaf(t, dispatcherID, nil)))
			if clientErr != nil || serverErr != nil {
				t.Fatalf("of one fleet: %v, %v", clientErr, serverErr)
			}
			clientErr, serverErr = handshake(t, shown(ours.leaf(t, agentID, nil)), shown(ours.leaf(t, other, nil)))
			wantStage(t, clientErr, transport.StageIdentity)
			wantStage(t, serverErr, transport.StageIdentity)
		})
	}
}

// TestLongHandshake checks that a peer which is not known yet is read so far and no further.
func TestLongHandshake(t *testing.T) {
	ours := newCerts(t)
	server := ours.leaf(t, dispatcherID, nil)
	cert := &server.Certificates[0]
	cert.Certificate = append(cert.Certificate, slices.Repeat([][]byte{ours.cert.Raw}, 300)...)
	clientErr, _ := handshake(t, ours.leaf(t, agentID, nil), server)
	if wantStage(t, clientErr, transport.StageTLS); !strings.Contains(clientErr.Error(), "too many bytes") {
		t.Errorf("it was read: %v", clientErr)
	}
}

// handshake runs both sides and returns their errors.
func handshake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	nc, ns := loopback(t)
	served := make(chan error, 1)
	go func() {
		c, err := transport.Server(t.Context(), ns, server, allowAgents)
		if err == nil {
			defer c.Close()
		}
		served <- err
	}()
	c, err := transport.Client(t.Context(), nc, client, transport.ProtocolAgent, transport.RoleDispatcher)
	if err == nil {
		defer c.Close()
	}
	return err, <-served
}

func TestVerification(t *testing.T) {
	ours := newCerts(t)
	named := func(name string) *tls.Config {
		return ours.leaf(t, dispatcherID, func(c *x509.Certificate) { c.DNSNames = []string{name} })
	}
	nobody := errors.New("nobody")
	deny := func(tls.ConnectionState) error { return nobody }
	cases := []struct {
		name    string
		client  func(*tls.Config)
		server  *tls.Config
		failing error // nil: succeeds; errAny: anything
	}{
		{"without a server name", func(*tls.Config) {}, named("other.example"), nil},
		{"with the right server name", func(c *tls.Config) { c.ServerName = "harp.example" }, named("harp.example"), nil},
		{"with a wrong server name", func(c *tls.Config) { c.ServerName = "harp.example" }, named("other.example"), errAny},
		{"with a server name the certificate lacks", func(c *tls.Config) { c.ServerName = "harp.example" }, ours.leaf(t, dispatcherID, nil), errAny},
		{"without authorities", func(c *tls.Config) { c.RootCAs = nil }, named("harp.example"), errAny},
		{"with a check of one's own", func(c *tls.Config) { c.VerifyConnection = deny }, named("harp.example"), nobody},
		{"when the clock says next year", func(c *tls.Config) {
			c.Time = func() time.Time { return time.Now().AddDate(1, 0, 0) }
		}, named("harp.example"), errAny},
		{"whatever the caller's settings", func(c *tls.Config) {
			c.MinVersion, c.MaxVersion, c.InsecureSkipVerify = tls.VersionTLS10, tls.VersionTLS12, true
		}, named("harp.example"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client := ours.leaf(t, agentID, nil)
			c.client(client)
			before := client.Clone()
			clientErr, serverErr := handshake(t, client, c.server)
			switch {
			case c.failing == nil && (clientErr != nil || serverErr != nil):
				t.Errorf("client: %v, server: %v", clientErr, serverErr)
			case c.failing != nil && (clientErr == nil || serverErr == nil):
				t.Errorf("client: %v, server: %v", clientErr, serverErr)
			case c.failing != nil && !errors.Is(c.failing, errAny) && !errors.Is(clientErr, c.failing):
				t.Errorf("client: %v", clientErr)
			}
			if client.MinVersion != before.MinVersion || client.NextProtos != nil || client.InsecureSkipVerify != before.InsecureSkipVerify {
				t.Error("the caller's configuration was changed")
			}
		})
	}
	t.Run("the server's own check", func(t *testing.T) {
		server := named("harp.example")
		server.VerifyConnection = deny
		_, serverErr := handshake(t, ours.leaf(t, agentID, nil), server)
		if !errors.Is(serverErr, nobody) {
			t.Errorf("server: %v", serverErr)
		}
	})
}

var errAny = errors.New("any error")

func TestOldTLS(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		nc, ns := loopback(t)
		go func() {
			config := tlsOf(t, agentID)
			config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			config.InsecureSkipVerify = true
			config.NextProtos = []string{transport.ProtocolAgent}
			_ = tls.Client(nc, config).Handshake()
			_ = nc.Close()
		}()
		_, err := transport.Server(t.Context(), ns, tlsOf(t, dispatcherID), allowAgents)
		wantStage(t, err, transport.StageTLS)
	})
	t.Run("server", func(t *testing.T) {
		nc, ns := loopback(t)
		go func() {
			config := tlsOf(t, dispatcherID)
			config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			config.NextProtos = []string{transport.ProtocolAgent}
			_ = tls.Server(ns, config).Handshake()
			_ = ns.Close()
		}()
		_, err := transport.Client(t.Context(), nc, tlsOf(t, agentID), transport.ProtocolAgent, transport.RoleDispatcher)
		wantStage(t, err, transport.StageTLS)
	})
}

// A TLS server that never says welcome has not accepted anything.
func TestNoWelcome(t *testing.T) {
	for name, says := range map[string][]byte{"nothing": nil, "something else": {0}} {
		t.Run(name, func(t *testing.T) {
			nc, ns := loopback(t)
			go func() {
				config := tlsOf(t, dispatcherID)
				config.NextProtos = []string{transport.ProtocolAgent}
				c := tls.Server(ns, config)
				_, _ = c.Write(says)
				_ = c.Close()
			}()
			_, err := transport.Client(t.Context(), nc, tlsOf(t, agentID), transport.ProtocolAgent, transport.RoleDispatcher)
			wantStage(t, err, transport.StageTLS)
		})
	}
}

func TestGarbageInsteadOfTLS(t *testing.T) {
	garbage := map[string][]byte{
		"text":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"a long record":  append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 70000)...),
		"a frame":        frame(transport.Frame{Type: 1, Body: bombs["array32"]}),
		"nothing at all": nil,
	}
	for name, b := range garbage {
		t.Run("server/"+name, func(t *testing.T) {
			nc, ns := loopback(t)
			go sayAndClose(nc, b)
			_, err := transport.Server(t.Context(), ns, tlsOf(t, dispatcherID), allowAgents)
			wantStage(t, err, transport.StageTLS)
			if _, err := ns.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is not closed: %v", err)
			}
		})
		t.Run("client/"+name, func(t *testing.T) {
			nc, ns := loopback(t)
			go sayAndClose(ns, b)
			_, err := transport.Client(t.Context(), nc, tlsOf(t, agentID), transport.ProtocolAgent, transport.RoleDispatcher)
			wantStage(t, err, transport.StageTLS)
		})
	}
}

func sayAndClose(nc net.Conn, b []byte) {
	_, _ = io.Copy(nc, bytes.NewReader(b))
	_ = nc.Close()
}

func TestHandshakeContext(t *testing.T) {
	for _, w := range []wiring{{name: "memory", memory: true}, {name: "tls"}} {
		t.Run(w.name, func(t *testing.T) {
			for _, side := range []string{"client", "server"} {
				nc, ns := w.pipe(t, agentID, dispatcherID)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					if side == "client" {
						done <- second(transport.Client(ctx, nc, w.tls(t, agentID), transport.ProtocolAgent, transport.RoleDispatcher))
					} else {
						done <- second(transport.Server(ctx, ns, w.tls(t, dispatcherID), allowAgents))
					}
				}()
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, transport.ErrHandshake) {
					t.Errorf("%s: %v", side, err)
				}
			}
		})
	}
}

// The fingerprint is that of the key, not of the certificate.
func TestFingerprint(t *testing.T) {
	config := tlsOf(t, agentID)
	other := tlsOf(t, agentID)
	seen := func(config *tls.Config) string {
		nc, ns := loopback(t)
		go func() {
			if c, err := transport.Client(t.Context(), nc, config, transport.ProtocolAgent, transport.RoleDispatcher); err == nil {
				_ = c.Close()
			}
		}()
		c, err := transport.Server(t.Context(), ns, tlsOf(t, dispatcherID), allowAgents)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Peer().Fingerprint
	}
	if first, again := seen(config), seen(config); first != again || first == seen(other) {
		t.Error("fingerprints do not tell keys apart")
	}
}
