package msgpack

import (
	"reflect"
	"unsafe"
)

// The parts of plans that encoding and decoding share.

type signed interface {
	int | int8 | int16 | int32 | int64
}

type unsigned interface {
	uint | uint8 | uint16 | uint32 | uint64
}

func signedPlan[T signed]() plan {
	encode := func(_ encoding, b []byte, at unsafe.Pointer) []byte { return AppendInt(b, int64(*(*T)(at))) }
	return plan{encode, decodeSigned[T], isZeroOf[T]}
}

func unsignedPlan[T unsigned]() plan {
	encode := func(_ encoding, b []byte, at unsafe.Pointer) []byte { return AppendUint(b, uint64(*(*T)(at))) }
	return plan{encode, decodeUnsigned[T], isZeroOf[T]}
}

func isZeroOf[T comparable](at unsafe.Pointer) bool {
	var zero T
	return *(*T)(at) == zero
}

func isEmptyBytes(at unsafe.Pointer) bool { return len(*(*[]byte)(at)) == 0 }

type byteArrayPlan struct {
	t reflect.Type
	n int
}

// listPlan is the plan of the items of a slice or an array.
type listPlan struct {
	t    reflect.Type
	size uintptr // of an item
	elem *plan
}

func (l listPlan) item(first unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(first, uintptr(i)*l.size)
}

type slicePlan struct{ listPlan }

func (l slicePlan) isEmpty(at unsafe.Pointer) bool { return reflect.NewAt(l.t, at).Elem().Len() == 0 }

type arrayPlan struct {
	listPlan
	n int
}

type mapPlan struct {
	t         reflect.Type
	key, elem *plan
}

func (m mapPlan) isEmpty(at unsafe.Pointer) bool { return reflect.NewAt(m.t, at).Elem().Len() == 0 }

type pointerPlan struct {
	t    reflect.Type // what it points to
	elem *plan
}

type interfacePlan struct{ t reflect.Type }

var errorType = reflect.TypeFor[error]()

func (i interfacePlan) isEmpty(c *Codec, at unsafe.Pointer) bool {
	v := reflect.NewAt(i.t, at).Elem().Elem()
	if !v.IsValid() {
		return true
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return c.planOf(v.Type()).empty(p.UnsafePointer())
}

// unfit is the plan of a type that has no encoding.
type unfit struct{ t reflect.Type }
