package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
)

// TestKeyExchangesAreModest: keys are exchanged before anything is known of a peer, which chooses how, and on some curves that costs seven
// times as much.
func TestKeyExchangesAreModest(t *testing.T) {
	ours := newCerts(t)
	for curve, want := range map[tls.CurveID]bool{
		tls.X25519MLKEM768: true, tls.X25519: true, tls.CurveP256: true, tls.SecP256r1MLKEM768: true,
		tls.SecP384r1MLKEM1024: false, tls.CurveP384: false, tls.CurveP521: false,
	} {
		t.Run(curve.String(), func(t *testing.T) {
			server := ours.leaf(t, dispatcherID, nil)
			client := ours.leaf(t, agentID, nil)
			client.CurvePreferences = []tls.CurveID{curve}
			_, err := handshake(t, client, server)
			if (err == nil) != want {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("as configured", func(t *testing.T) {
		server, client := ours.leaf(t, dispatcherID, nil), ours.leaf(t, agentID, nil)
		server.CurvePreferences = []tls.CurveID{tls.CurveP384}
		client.CurvePreferences = server.CurvePreferences
		if clientErr, serverErr := handshake(t, client, server); clientErr != nil || serverErr != nil {
			t.Errorf("client %v, server %v", clientErr, serverErr)
		}
	})
}

// TestStrangersCertificatesAreShort: what certificates hold is read before they are verified, and that takes time.
func TestStrangersCertificatesAreShort(t *testing.T) {
	ours := newCerts(t)
	client := ours.leaf(t, agentID, nil)
	cert := &client.Certificates[0]
	long := ours.leaf(t, agentID, func(c *x509.Certificate) { c.DNSNames = slices.Repeat([]string{"a"}, 10_000) })
	cert.Certificate = append(cert.Certificate, long.Certificates[0].Certificate[0])
	_, err := handshake(t, client, ours.leaf(t, dispatcherID, nil))
	if err == nil || !strings.Contains(err.Error(), "too many bytes") {
		t.Errorf("it was read: %v", err)
	}
}
