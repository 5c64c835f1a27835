package msgpack

// The first bytes of values.
const (
	codeNil   = 0xc0
	codeNone  = 0xc1 // begins no value
	codeFalse = 0xc2
	codeTrue  = 0xc3

	codePosFix = 0x7f // up to here an integer
	codeNegFix = 0xe0 // from here on an integer
	codeUint8  = 0xcc
	codeUint16 = 0xcd
	codeUint32 = 0xce
	codeUint64 = 0xcf
	codeInt8   = 0xd0
	codeInt16  = 0xd1
	codeInt32  = 0xd2
	codeInt64  = 0xd3
	codeFloat  = 0xca
	codeDouble = 0xcb

	codeExt8     = 0xc7
	codeExt32    = 0xc9
	codeFixExt1  = 0xd4
	codeFixExt4  = 0xd6
	codeFixExt8  = 0xd7
	codeFixExt16 = 0xd8

	codeFixMap   = 0x80 // with the length in the low bits, as the next two
	codeFixArray = 0x90
	codeFixStr   = 0xa0
	codeStr8     = 0xd9
	codeStr16    = 0xda
	codeStr32    = 0xdb
	codeBin8     = 0xc4
	codeBin16    = 0xc5
	codeBin32    = 0xc6
	codeArray16  = 0xdc
	codeArray32  = 0xdd
	codeMap16    = 0xde
	codeMap32    = 0xdf
)
