package vfs

import "os"

// writeZeros extends f to size by writing, for systems that cannot reserve.
func writeZeros(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, min(1<<20, max(0, size-st.Size())))
	for off := st.Size(); off < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
