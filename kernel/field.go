package kernel

// FieldKind is the kind of value a Field has.
type FieldKind uint8

// The kinds of value. Integers of all sizes are one kind.
const (
	FieldNil FieldKind = iota
	FieldBool
	FieldInt
	FieldFloat
	FieldText
	FieldOther // what the kernel compares bytewise and does not interpret, as Raw
)

// Field is one header of a publish with its typed value, as exchanges that
// look at headers compare it.
type Field struct {
	Name string
	Kind FieldKind
	Bits uint64 // of a bool (0, 1), an int64, or a float64 (math.Float64bits)
	Text string // of FieldText and FieldOther
}

// Fields gives the headers of a publish.
type Fields interface {
	// AppendFields appends them to dst. Their strings may alias what the record
	// aliases. It is called within the publishing call, and only if an exchange
	// looks at headers.
	AppendFields(dst []Field) []Field
}
