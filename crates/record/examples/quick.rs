//! quick
use probe_sync_record::*;
use std::hint::black_box;
fn rdtsc()->u64{unsafe{core::arch::x86_64::_rdtsc()}}
fn cpu()->f64{ let t=rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime); t.tv_sec as f64*1e9+t.tv_nsec as f64}
fn time(n:u64,mut f:impl FnMut(u64))->f64{ let a=cpu(); for i in 0..n{f(i)} (cpu()-a)/n as f64}
fn med(mut v:Vec<f64>)->f64{v.sort_by(f64::total_cmp);v[v.len()/2]}
fn main(){
 let n=1_000_000u64;
 let mut buf=vec![0u64;4<<17];
 for (i,b) in buf.iter_mut().enumerate(){*b=i as u64}
 let mut r:Vec<Vec<f64>>=vec![vec![];8];
 for _ in 0..9 {
  r[0].push(time(n,|i|{let a=rdtsc();let b=rdtsc();let k=(i as usize&((1<<17)-1))*4;let s=&mut buf[k..k+4];s[0]=a;s[1]=b;s[2]=i;s[3]=7;black_box(s);}));
  r[1].push(time(n,|_|{let _s=scope!("off");}));
  let s=Recorder::builder().policy(Policy::Flight{bytes:64<<20}).start().unwrap();
  let _w=scope!("w");
  r[2].push(time(n,|_|{let _s=scope!("on");}));
  r[3].push(time(n,|i|{let _s=scope!("on2",a=i,b=i);}));
  r[4].push(time(n,|_|{instant!("i");}));
  r[5].push(time(n,|i|{counter!("c",i);}));
  drop(s);
 }
 for (k,name) in ["floor","off","scope","scope2","instant","counter"].iter().enumerate(){let m=med(r[k].clone());println!("{name} {m:.2} ratio {:.2}",m/med(r[0].clone()));}
}
