package harp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"time"
)

// MarshalJSON returns the value as JSON: bytes as base64, times as RFC 3339, the
// floats that JSON lacks as the strings "NaN", "+Inf" and "-Inf", a sealed value
// as "***". Errors: ErrInvalid.
func (v Value) MarshalJSON() ([]byte, error) {
	got, err := v.Any()
	if err != nil {
		return nil, err
	}
	text, err := plainJSON(printable(got))
	if err != nil {
		return nil, &FieldError{Field: "value", Message: err.Error()}
	}
	return text, nil
}

// plainJSON is v as JSON on one line, without the escapes that only HTML needs.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// printable replaces what JSON writes differently from what Value promises.
func printable(v any) any {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		if math.Abs(v) >= 1<<53 { // with an exponent: its digits are not exact
			return json.Number(strconv.FormatFloat(v, 'e', -1, 64))
		}
	case []any:
		for i := range v {
			v[i] = printable(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = printable(v[k])
		}
	}
	return v
}

// UnmarshalJSON sets v to the msgpack of a JSON text; numbers without fraction or
// exponent become integers. Errors: ErrInvalid, also for an integer beyond 64 bits.
func (v *Value) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var got any
	if err := dec.Decode(&got); err != nil {
		return &FieldError{Field: "value", Message: err.Error()}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &FieldError{Field: "value", Message: "one JSON value expected"}
	}
	got, err := exactNumbers(got)
	if err != nil {
		return err
	}
	made, err := NewValue(got)
	if err == nil {
		*v = made
	}
	return err
}

func exactNumbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return exactNumber(v)
	case []any:
		for i := range v {
			if v[i], err = exactNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = exactNumbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func exactNumber(n json.Number) (any, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return u, nil
	}
	if !bytes.ContainsAny([]byte(n), ".eE") {
		return nil, &FieldError{Field: "value", Message: "integer " + n.String() + " does not fit 64 bits"}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, &FieldError{Field: "value", Message: err.Error()}
	}
	return f, nil
}
