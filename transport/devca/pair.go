package devca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
)

const (
	keyBlock  = "PRIVATE KEY"
	certBlock = "CERTIFICATE"
)

// pair is a key with its certificate.
type pair struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// newPair makes a certificate from a template, for key or a new one if nil,
// signed by issuer or by itself if nil.
func newPair(key *ecdsa.PrivateKey, template *x509.Certificate, issuer *pair) (pair, error) {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return pair{}, err
		}
	}
	number := make([]byte, 16)
	if _, err := rand.Read(number); err != nil {
		return pair{}, err
	}
	number[0] &= 0x7f // positive
	template.SerialNumber = new(big.Int).SetBytes(number)
	if issuer == nil {
		issuer = &pair{key: key, cert: template}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return pair{key: key, cert: cert}, err
}

// readPair reads key and certificate from one file.
func readPair(path string) (pair, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return pair{}, err
	}
	p, err := parsePair(data)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// parsePair reads key and certificate in PEM form. tls.X509KeyPair checks that
// they belong together.
func parsePair(data []byte) (pair, error) {
	c, err := tls.X509KeyPair(data, data)
	if err != nil {
		return pair{}, err
	}
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, errors.New("not an ECDSA key")
	}
	return pair{key: key, cert: c.Leaf}, nil
}

// certificate returns the pair as crypto/tls wants it.
func (p pair) certificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p pair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: p.cert.Raw})
}

func (p pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

func (p pair) bothPEM() ([]byte, error) {
	key, err := p.keyPEM()
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{key, p.certPEM()}, nil), nil
}

// replaceFile writes a file in one step, over the one that is there.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	return placeFile(path, data, mode, os.Rename)
}

// createFile writes a file in one step, unless there is one.
func createFile(path string, data []byte, mode os.FileMode) error {
	err := placeFile(path, data, mode, os.Link)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// placeFile writes a file beside path and then puts it there.
func placeFile(path string, data []byte, mode os.FileMode, put func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed, or a leftover
	if err := writeTo(f, data, mode); err != nil {
		return err
	}
	return put(f.Name(), path)
}

// writeTo fills a file and closes it.
func writeTo(f *os.File, data []byte, mode os.FileMode) error {
	_, err := f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// digest returns a short name for a long one.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
