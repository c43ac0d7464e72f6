package codec

import (
	"errors"
	"reflect"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func TestRoundTrip(t *testing.T) {
	args := []kernel.Argument{
		{Name: "nil"}, {Name: "t", Value: true}, {Name: "f", Value: false}, {Name: "i", Value: int64(-1 << 63)},
		{Name: "d", Value: 0.1}, {Name: "s", Value: "é"}, {Name: "b", Value: []byte{0}}, {Name: "r", Value: kernel.Raw("\x00")},
	}
	b := AppendUint(nil, 1<<64-1)
	b = AppendInt(b, -5)
	b = AppendString(b, "text")
	b = AppendFlags(b, true, false, true)
	b = AppendArguments(b, args)
	r := &Reader{B: b}
	if u, i, s := r.Uint(), r.Int(), r.String(); u != 1<<64-1 || i != -5 || s != "text" {
		t.Error(u, i, s)
	}
	var x, y, z bool
	if r.Flags(&x, &y, &z); !x || y || !z {
		t.Error(x, y, z)
	}
	if got := r.Arguments(); !reflect.DeepEqual(got, args) {
		t.Errorf("got %v", got)
	}
	if err := r.Done(); err != nil {
		t.Error(err)
	}
}

func TestHostile(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"string":    func(r *Reader) { _ = r.String() },
		"count":     func(r *Reader) { r.Count() },
		"arguments": func(r *Reader) { r.Arguments() },
		"bytes":     func(r *Reader) { r.Bytes(1 << 30) },
	} {
		for _, b := range [][]byte{nil, {0xff}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, {200, 1}, {1, 1, 'x', 99}} {
			r := &Reader{B: b}
			read(r)
			if err := r.Done(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s of %x: %v", name, b, err)
			}
		}
	}
}
