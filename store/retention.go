package store

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/msgpack"
	"github.com/harpcaller/harp/window"
)

// RetentionKind is the kind of documents that retention rules are kept as. A store reads them: which rule holds for what ends is
// decided in the commit of its end, by the documents that were committed before.
const RetentionKind = "retention"

// RetentionDocument is what is stored of a rule.
type RetentionDocument struct {
	Rule    harp.RetentionRule `msgpack:"rule"`
	By      harp.Principal     `msgpack:"by"`
	Changed time.Time          `msgpack:"changed"`

	ManagedBy string `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand
}

// Ending is what of a job or a batch decides which rule fits it.
type Ending struct {
	State     harp.State // of a batch the word is the same
	Procedure string
	Schedule  string
	Labels    map[string]string
}

// documents encodes what is stored of a rule.
var documents = msgpack.Codec{Message: true}

// Encode returns the document as it is stored.
func (d *RetentionDocument) Encode() []byte {
	b, err := documents.Append(nil, d)
	if err != nil {
		panic("store: encode a retention rule: " + err.Error()) // it holds nothing that cannot be encoded
	}
	return b
}

// ReadRetention is the inverse of [RetentionDocument.Encode]. Errors: of what is the document of no rule.
func ReadRetention(content []byte) (d RetentionDocument, err error) {
	err = documents.Decode(content, &d)
	return d, err
}

// FindRule returns the first of the rules that fits, in their order; false if none does.
func FindRule(rules []harp.RetentionRule, e Ending) (harp.RetentionRule, bool) {
	for _, r := range rules {
		if e.fits(&r) {
			return r, true
		}
	}
	return harp.RetentionRule{}, false
}

func (e *Ending) fits(r *harp.RetentionRule) bool {
	if len(r.States) > 0 && !slices.Contains(r.States, e.State) {
		return false
	}
	if r.Procedure != "" && !window.MatchGlob(r.Procedure, e.Procedure) {
		return false
	}
	if r.Schedule != "" && (e.Schedule == "" || !window.MatchGlob(r.Schedule, e.Schedule)) {
		return false
	}
	for key, value := range r.Labels {
		if is, has := e.Labels[key]; !has || is != value {
			return false
		}
	}
	return true
}

// RetentionClass is what has ended under one rule as it was then.
type RetentionClass struct {
	No       uint32        `msgpack:"-"` // 0 is the class of what no rule fits
	Rule     string        `msgpack:"rule,omitempty"`
	Keep     time.Duration `msgpack:"keep,omitempty"`  // 0: as long as what no rule fits; harp.NoLimit: for ever
	MaxBytes int64         `msgpack:"most,omitempty"`  // 0: any number
	Bytes    int64         `msgpack:"bytes,omitempty"` // that it stores, about; counted only where there is a MaxBytes
}

// IsLost reports whether nobody knows of which rule the class is, as its row is lost or damaged.
func (c RetentionClass) IsLost() bool { return c.No > 0 && c.Rule == "" }

// IsOf reports whether the class is that of a rule as it is.
func (c RetentionClass) IsOf(r *harp.RetentionRule) bool {
	return c.Rule == r.Name && c.Keep == r.Keep && c.MaxBytes == r.MaxBytes
}
