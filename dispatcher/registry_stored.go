package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// The registry as it was last read is stored, so that a dispatcher whose script fails
// at start knows its hosts all the same. It is cut in documents, since a document has at
// most 1 MiB: one says where the others are. Those of the registry before stay until the
// new ones are there.
const (
	registryKind = "registry"
	registryHead = "hosts"
	registryPart = 512 << 10 // bytes
)

// storedHead says which documents are the registry.
type storedHead struct {
	Set   int `json:"set"` // 0 or 1, in turn
	Parts int `json:"parts"`
}

func (h storedHead) part(n int) string { return fmt.Sprintf("%s.%d.%d", registryHead, h.Set, n) }

// storedRegistry reads what was stored. Errors: harp.ErrNotFound, store.ErrDamaged, the
// store's, json's.
func (d *Dispatcher) storedRegistry(ctx context.Context) ([]HostSpec, error) {
	head, err := d.storedHead(ctx)
	if err != nil {
		return nil, err
	}
	var text []byte
	for n := range head.Parts {
		part, err := d.store.Document(ctx, registryKind, head.part(n))
		if err != nil {
			return nil, err
		}
		text = append(text, part...)
	}
	var specs []HostSpec
	if err := json.Unmarshal(text, &specs); err != nil {
		return nil, err
	}
	d.registry.stored = text
	return specs, nil
}

func (d *Dispatcher) storedHead(ctx context.Context) (head storedHead, err error) {
	text, err := d.store.Document(ctx, registryKind, registryHead)
	if err == nil {
		err = json.Unmarshal(text, &head)
	}
	return head, err
}

// storeRegistry stores the registry, if it is not what is stored.
func (d *Dispatcher) storeRegistry(ctx context.Context, specs []HostSpec) error {
	text, err := json.Marshal(specs)
	if err != nil || bytes.Equal(text, d.registry.stored) {
		return err
	}
	old, err := d.storedHead(ctx)
	if err != nil && !errors.Is(err, harp.ErrNotFound) && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	head := storedHead{Set: 1 - old.Set}
	for rest := text; len(rest) > 0; head.Parts++ {
		n := min(len(rest), registryPart)
		if err := d.store.PutDocument(ctx, registryKind, head.part(head.Parts), rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	made, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if err := d.store.PutDocument(ctx, registryKind, registryHead, made); err != nil {
		return err
	}
	d.registry.stored = text
	d.emptyParts(ctx, old)
	return nil
}

// emptyParts gives back the space of a registry that is no longer the one: there is no
// deleting documents. What is not given back is in nobody's way.
func (d *Dispatcher) emptyParts(ctx context.Context, old storedHead) {
	for n := range old.Parts {
		if err := d.store.PutDocument(ctx, registryKind, old.part(n), nil); err != nil {
			d.log.Warn("space of the last hosts registry is not given back", "err", err)
			return
		}
	}
}
