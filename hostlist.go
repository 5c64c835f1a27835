package harp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/harpcaller/harp/target"
)

// HostList stands in the request of a batch for a list of hosts that is longer than MaxTarget: the request
// is sent to each host, so the names travel beside it, in Submission.Hosts, and are stored once.
type HostList struct {
	Count  int    `json:"count" msgpack:"count"`   // of names
	Digest string `json:"digest" msgpack:"digest"` // SHA-256 of Submission.Hosts
}

// EncodeHosts returns names as Submission.Hosts has them: each once, sorted, behind its length in two bytes.
// Errors: ErrInvalid (hosts).
func EncodeHosts(names []string) ([]byte, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	size := 0
	for _, name := range names {
		if err := checkName("hosts", name, MaxHostName); err != nil {
			return nil, err
		}
		size += hostHead + len(name)
	}
	if size > MaxHostList {
		return nil, &FieldError{Field: "hosts", Message: fmt.Sprintf("take %d bytes, at most %d", size, MaxHostList)}
	}
	hosts := make([]byte, 0, size)
	for _, name := range names {
		hosts = append(binary.BigEndian.AppendUint16(hosts, uint16(len(name))), name...) //nolint:gosec // at most MaxHostName
	}
	return hosts, nil
}

// Names returns the names of the list, sorted, out of the Hosts of its Submission. Errors: ErrInvalid
// (hosts) where they are not those of the list, or not as EncodeHosts makes them.
func (l *HostList) Names(hosts []byte) ([]string, error) {
	wrong := func(what string) error { return &FieldError{Field: "hosts", Message: what} }
	if digestOfHosts(hosts) != l.Digest {
		return nil, wrong("are not those that the request lists")
	}
	if len(hosts) > MaxHostList {
		return nil, wrong(fmt.Sprintf("take %d bytes, at most %d", len(hosts), MaxHostList))
	}
	var names []string
	for len(hosts) > 0 {
		if len(hosts) < hostHead {
			return nil, wrong("end within a name")
		}
		end := hostHead + int(binary.BigEndian.Uint16(hosts))
		if end > len(hosts) {
			return nil, wrong("end within a name")
		}
		name := string(hosts[hostHead:end])
		if err := checkName("hosts", name, MaxHostName); err != nil {
			return nil, err
		}
		if len(names) > 0 && name <= names[len(names)-1] {
			return nil, wrong("are not sorted, or have " + name + " twice")
		}
		names, hosts = append(names, name), hosts[end:]
	}
	if len(names) != l.Count {
		return nil, wrong(fmt.Sprintf("are %d, and the request lists %d", len(names), l.Count))
	}
	return names, nil
}

// newHostList returns the list that a canonical target is, with the bytes of its names; nil for one that is
// short enough, or more than names that are written out.
func newHostList(canonical string) (*HostList, []byte, error) {
	if len(canonical) <= MaxTarget {
		return nil, nil, nil
	}
	e, err := target.Parse(canonical)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // it was parsed before
	}
	m, err := e.Compile(nil)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // it has groups
	}
	names, only := m.Names()
	if !only {
		return nil, nil, nil
	}
	hosts, err := EncodeHosts(names)
	if err != nil {
		return nil, nil, err
	}
	return &HostList{Count: len(names), Digest: digestOfHosts(hosts)}, hosts, nil
}

// hostHead is how many bytes say how long a name is.
const hostHead = 2

func digestOfHosts(hosts []byte) string {
	sum := sha256.Sum256(hosts)
	return hex.EncodeToString(sum[:])
}
