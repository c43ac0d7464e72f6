package segment

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestRepair: any damage to the header or the footer is undone, byte for byte;
// any other is left alone.
func TestRepair(t *testing.T) {
	fs := vfs.NewMem()
	size, sum := build(t, fs)
	whole := raw(t, fs)
	file, err := fs.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, pos := range []int64{0, 7, 9, 31, 32, size / 2, size - FooterSize - 1, size - FooterSize, size - 30, size - 1} {
		damaged := bytes.Clone(whole)
		damaged[pos] ^= 4
		if _, err := file.WriteAt(damaged, 0); err != nil {
			t.Fatal(err)
		}
		err := Repair(fs, name, 77, size, sum)
		if ends := pos < HeaderSize || pos >= size-FooterSize; ends {
			if got := raw(t, fs); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("at %d: not repaired: %v", pos, err)
			}
		} else if got := raw(t, fs); !errors.Is(err, ErrDamaged) || !bytes.Equal(got, damaged) {
			t.Errorf("at %d: %v", pos, err)
		}
	}
	if _, err := file.WriteAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{Repair(fs, name, 78, size, sum), Repair(fs, name, 77, size+1, sum), Repair(fs, name, 77, size, sum+1)} {
		if !errors.Is(err, ErrDamaged) || !bytes.Equal(raw(t, fs), whole) {
			t.Errorf("another segment: %v", err)
		}
	}
}
