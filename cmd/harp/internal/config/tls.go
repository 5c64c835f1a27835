package config

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp/internal/yamlfile"
	"github.com/harpcaller/harp/transport"
)

// TLS names the PEM files of a program's certificate. Relative paths are relative
// to the configuration file.
type TLS struct {
	Cert string `yaml:"cert"` // the certificate, with its identity harp://FLEET/ROLE/NAME
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"` // whom to trust
}

// loadFiles reads the files and checks that the certificate is of the role.
func (t TLS) loadFiles(f *yamlfile.File, role transport.Role) (*tls.Config, transport.Identity, error) {
	var missing []error
	for _, file := range []struct{ field, value string }{{"tls.cert", t.Cert}, {"tls.key", t.Key}, {"tls.ca", t.CA}} {
		if file.value == "" {
			missing = append(missing, f.Errorf(file.field, "is missing: must name a PEM file"))
		}
	}
	if len(missing) > 0 {
		return nil, transport.Identity{}, errors.Join(missing...)
	}
	tc, err := transport.LoadTLS(f.Path(t.Cert), f.Path(t.Key), f.Path(t.CA))
	if err != nil {
		return nil, transport.Identity{}, f.Errorf("tls", "%s", strings.TrimPrefix(err.Error(), "transport: "))
	}
	id, err := transport.IdentityOf(tc.Certificates[0].Leaf)
	if err == nil && id.Role != role {
		err = f.Errorf("tls.cert", "names the role %s (%s), not %s", id.Role, id, role)
	}
	return tc, id, err
}

// Log is how a program logs, to stderr.
type Log struct {
	Level  Level  `yaml:"level"`  // debug, info (default), warn, error
	Format Format `yaml:"format"` // text (default), json
}

// Level is a slog.Level by name.
type Level struct{ slog.Level }

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *Level) UnmarshalYAML(n *yaml.Node) error {
	if err := l.UnmarshalText([]byte(n.Value)); err != nil {
		return errors.New("must be debug, info, warn or error, is " + n.Value)
	}
	return nil
}

// Format is how lines of a log are written.
type Format string

// UnmarshalYAML implements yaml.Unmarshaler.
func (f *Format) UnmarshalYAML(n *yaml.Node) error {
	if n.Value != "text" && n.Value != "json" {
		return errors.New("must be text or json, is " + n.Value)
	}
	*f = Format(n.Value)
	return nil
}
