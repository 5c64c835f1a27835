package wire

import "github.com/harpcaller/harp"

// Apply makes schedules, groups and windows what documents say.
type Apply struct {
	Request   string `msgpack:"id,omitempty"` // the same when it is asked again; of no dry run
	ManagedBy string `msgpack:"managed"`
	Documents Rows   `msgpack:"documents"` // of harp.Document
	harp.ApplyOptions
}

// NewApply returns the message for documents.
func NewApply(id, managedBy string, documents []harp.Document, o harp.ApplyOptions) Apply {
	m := Apply{Request: id, ManagedBy: managedBy, ApplyOptions: o}
	for _, d := range documents {
		m.Documents = append(m.Documents, Encode(d))
	}
	return m
}

// Applied answers Apply.
type Applied struct {
	Count   int  `msgpack:"count"`
	Changes Rows `msgpack:"changes,omitempty"` // of harp.DocumentChange
}

// NewApplied returns the message for what was changed.
func NewApplied(a harp.Applied) Applied {
	return Applied{Count: a.Count, Changes: NewRows(a.Changes, MaxRows)}
}

// Applied is what was changed. The error says what of the message cannot be read.
func (m Applied) Applied() (harp.Applied, error) {
	changes, err := DecodeRows[harp.DocumentChange](m.Changes)
	return harp.Applied{Count: m.Count, Changes: changes}, err
}
