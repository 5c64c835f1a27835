// Package devca makes certificates for development, examples and tests on one
// machine. It is no substitute for a certificate authority.
package devca

import (
	"crypto/tls"

	"github.com/harpcaller/harp/transport"
)

// CA is a certificate authority of one fleet.
type CA struct{}

// Open returns the authority kept in dir, made there on first use. An empty dir
// keeps it in memory only.
func Open(dir, fleet string) (*CA, error) { panic("todo") }

// TLS returns the configuration with which id speaks and listens.
func (ca *CA) TLS(id transport.Identity) (*tls.Config, error) { panic("todo") }

// WriteFiles writes base.crt, base.key and ca.crt to dir.
func (ca *CA) WriteFiles(dir, base string, id transport.Identity) error { panic("todo") }
