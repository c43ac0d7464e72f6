package wire

import (
	"bytes"
	"testing"
)

// TestPull: packets without a body are taken out wherever they are whole; the others stay
// as they are, and so does what is not whole.
func TestPull(t *testing.T) {
	ping := AppendPingreq(nil)
	one, two := []byte{0x30, 3, 0, 1, 'a'}, []byte{0xC0, 1, 0} // one with a body is none
	var in []byte
	for _, p := range [][]byte{ping, one, ping, ping, two, ping, one[:4]} {
		in = append(in, p...)
	}
	r := NewReader(bytes.NewReader(in), 100)
	if _, err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	if n := r.Pull(Pingreq << 4); n != 4 || r.Buffered() != len(one)+len(two)+4 {
		t.Errorf("%d, %d bytes are left", n, r.Buffered())
	}
	if n := r.Pull(Pingreq << 4); n != 0 {
		t.Errorf("%d once more", n)
	}
	for _, want := range [][]byte{one, two} {
		first, body, ok, err := r.Take()
		if err != nil || !ok || first != want[0] || !bytes.Equal(body, want[2:]) {
			t.Errorf("%x %x %v %v", first, body, ok, err)
		}
	}
	if _, _, ok, err := r.Take(); ok || err != nil {
		t.Error(ok, err)
	}
}
