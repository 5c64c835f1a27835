package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"time"
)

// archive writes a tar.gz, for Windows a zip, with one folder in it.
func (r *release) archive(p program, common []file) error {
	name := "harp-" + r.version + "-" + p.os + "-" + p.arch
	binary := "harp"
	if p.os == "windows" {
		binary += ".exe"
	}
	files := append([]file{{binary, 0o755, p.code}}, common...)
	for i := range files {
		files[i].name = name + "/" + files[i].name
	}
	if p.os == "windows" {
		data, err := zipFiles(files, r.time)
		if err != nil {
			return err
		}
		return r.write(name+".zip", data)
	}
	data, err := tarFiles(files, r.time)
	if err != nil {
		return err
	}
	if data, err = compress(data); err != nil {
		return err
	}
	return r.write(name+".tar.gz", data)
}

// tarFiles is a tar of files that belong to root.
func tarFiles(files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at, Format: tar.FormatPAX})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func zipFiles(files []file, at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		entry, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// compress is gzip without a name or a time.
func compress(data []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return buf.Bytes(), err
}
