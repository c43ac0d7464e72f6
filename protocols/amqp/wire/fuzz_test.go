package wire

import (
	"bytes"
	"testing"
)

// FuzzMethod: whatever decodes encodes to something that decodes to the same.
func FuzzMethod(f *testing.F) {
	for _, tc := range methodCases {
		b := unhex(f, tc.wire)
		f.Add(b[7 : len(b)-1])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := ReadMethod(payload)
		if err != nil {
			return
		}
		first := m.append(nil)
		again, err := ReadMethod(first)
		if err != nil {
			t.Fatalf("%v: %v", m.ID(), err)
		}
		if second := again.append(nil); !bytes.Equal(first, second) {
			t.Fatalf("%v: %x, then %x", m.ID(), first, second)
		}
	})
}

// FuzzHeader: what parses is written back byte for byte.
func FuzzHeader(f *testing.F) {
	p := fullProperties()
	b := AppendContent(nil, 1, &p, nil, 4096)
	f.Add(b[7 : len(b)-1])
	f.Add([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var p Properties
		_, _, err := ParseHeader(payload, &p)
		if err != nil {
			return
		}
		if got := p.append(nil); !bytes.Equal(got, payload[12:]) {
			t.Fatalf("%x, want %x", got, payload[12:])
		}
	})
}

// FuzzTable: the three readers of tables agree on what is well formed.
func FuzzTable(f *testing.F) {
	for _, tc := range tableCases {
		f.Add(AppendTable(nil, tc.table)[4:])
	}
	f.Add(nested('A', 70))
	f.Fuzz(func(t *testing.T, content []byte) {
		table, err := ReadTable(content)
		if checked := CheckTable(content); (checked == nil) != (err == nil) {
			t.Fatalf("read: %v, checked: %v", err, checked)
		}
		if err != nil {
			return
		}
		n := 0
		w := WalkTable(content)
		for w.Next() {
			n++
		}
		if w.Err() != nil || n != len(table) {
			t.Fatalf("walked %d of %d: %v", n, len(table), w.Err())
		}
		if again, err := ReadTable(AppendTable(nil, table)[4:]); err != nil || !equalTables(again, table) {
			t.Fatalf("%v, %v", again, err)
		}
	})
}

// FuzzFrames: any stream ends in an error and in bounded memory.
func FuzzFrames(f *testing.F) {
	f.Add(AppendHeartbeat(AppendMethod(nil, 1, &ChannelOpen{})))
	f.Add([]byte(ProtocolHeader))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewFrameReader(bytes.NewReader(stream), 4096)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		if len(r.buf) > maxIdleBuffer {
			t.Fatalf("buffer of %d bytes", len(r.buf))
		}
	})
}
