package harp

import (
	"encoding/json"
	"time"
)

// retentionJSON is how a RetentionRule is written as JSON, statusOfRetentionJSON a RetentionStatus and keptJSON a Kept.
type (
	retentionFields RetentionRule
	retentionJSON   struct {
		retentionFields
		Keep durationJSON `json:"keep,omitzero"`
	}

	statusOfRetentionJSON struct {
		retentionJSON
		ManagedBy string    `json:"managed_by,omitempty"`
		By        Principal `json:"by,omitzero"`
		Changed   time.Time `json:"changed,omitzero"`
		Bytes     int64     `json:"bytes,omitempty"`
	}

	keptFields Kept
	keptJSON   struct {
		keptFields
		Keep durationJSON `json:"keep,omitzero"`
	}
)

// MarshalJSON writes the fields that are not zero, in snake_case: Keep as "720h0m0s", or as "none" where it is NoLimit.
func (r RetentionRule) MarshalJSON() ([]byte, error) {
	return plainJSON(retentionJSON{retentionFields(r), durationJSON(r.Keep)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (r *RetentionRule) UnmarshalJSON(text []byte) error {
	var read retentionJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*r = read.rule()
	return nil
}

func (j retentionJSON) rule() RetentionRule {
	r := RetentionRule(j.retentionFields)
	r.Keep = time.Duration(j.Keep)
	return r
}

// MarshalJSON writes the fields of the RetentionRule and its own.
func (s RetentionStatus) MarshalJSON() ([]byte, error) {
	return plainJSON(statusOfRetentionJSON{
		retentionJSON{retentionFields(s.RetentionRule), durationJSON(s.Keep)}, s.ManagedBy, s.By, s.Changed, s.Bytes,
	})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (s *RetentionStatus) UnmarshalJSON(text []byte) error {
	var read statusOfRetentionJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = RetentionStatus{read.rule(), read.ManagedBy, read.By, read.Changed, read.Bytes}
	return nil
}

// MarshalJSON writes the fields that are not zero, as RetentionRule does.
func (k Kept) MarshalJSON() ([]byte, error) {
	return plainJSON(keptJSON{keptFields(k), durationJSON(k.Keep)})
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: those of package json; a [*FieldError] for a
// duration that is none.
func (k *Kept) UnmarshalJSON(text []byte) error {
	var read keptJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*k = Kept(read.keptFields)
	k.Keep = time.Duration(read.Keep)
	return nil
}
